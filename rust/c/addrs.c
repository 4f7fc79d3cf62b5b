// SPDX-License-Identifier: GPL-2.0
/*
 * The addresses of network devices.
 *
 * The list of an address family may be read in an RCU reader only, IPv6's with its lock
 * held, too. Rust gets the addresses copied, as many as there is room for, and the
 * number of all.
 *
 * The kernel exports questions about one address (inet_addr_type(), ipv6_chk_addr()),
 * but nothing that goes through all of them but rtnetlink, for programs. The lists are
 * linked through fields, and walked by macros.
 *
 * The compiler notices a change of the lists, but not one of their locking.
 */

#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>

#include "rust_c.h"

static void set_v4(struct __kernel_sockaddr_storage *out, __be32 addr)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)out;

	memset(out, 0, sizeof(*out));
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = addr;
}

static void set_v6(struct __kernel_sockaddr_storage *out,
		   const struct in6_addr *addr, const struct net_device *dev)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	sin6->sin6_family = AF_INET6;
	sin6->sin6_addr = *addr;
	if (ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL)
		sin6->sin6_scope_id = dev->ifindex;
}

/*
 * Appends the addresses of @dev to the @n that there are, of which at most @max are
 * written; returns how many there are then. With @global only those that other
 * hosts can use.
 */
static u32 add_addrs(struct net_device *dev, bool global,
		     struct __kernel_sockaddr_storage *out, u32 max, u32 n)
{
	const struct in_ifaddr *ifa;
	struct inet6_ifaddr *ifp;
	struct inet6_dev *idev;
	struct in_device *in_dev;

	in_dev = __in_dev_get_rcu(dev);
	if (in_dev) {
		in_dev_for_each_ifa_rcu(ifa, in_dev) {
			if (global && ifa->ifa_scope != RT_SCOPE_UNIVERSE)
				continue;
			if (n < max)
				set_v4(&out[n], ifa->ifa_local);
			n++;
		}
	}
	idev = __in6_dev_get(dev);
	if (idev) {
		read_lock_bh(&idev->lock);
		list_for_each_entry(ifp, &idev->addr_list, if_list) {
			if (ifp->flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED))
				continue;
			if (global && ifp->scope)
				continue;
			if (n < max)
				set_v6(&out[n], &ifp->addr, dev);
			n++;
		}
		read_unlock_bh(&idev->lock);
	}
	return n;
}

/* The device's addresses, at most @max of them; returns how many there are. */
u32 base_dev_addrs(struct net_device *dev,
		   struct __kernel_sockaddr_storage *out, u32 max)
{
	u32 n;

	rcu_read_lock();
	n = add_addrs(dev, false, out, max, 0);
	rcu_read_unlock();
	return n;
}

/*
 * The same, for the addresses of a namespace that other hosts can use, of the VRF
 * with the index @vrf, or outside of VRFs. @index gets the index of the device of
 * each.
 */
u32 base_net_addrs(struct net *net, u32 vrf,
		   struct __kernel_sockaddr_storage *out, u32 *index, u32 max)
{
	struct net_device *dev;
	u32 i, n = 0;

	rcu_read_lock();
	for_each_netdev_rcu(net, dev) {
		if (dev->flags & IFF_LOOPBACK ||
		    l3mdev_master_ifindex_rcu(dev) != vrf)
			continue;
		i = n;
		n = add_addrs(dev, true, out, max, n);
		for (; i < min(n, max); i++)
			index[i] = dev->ifindex;
	}
	rcu_read_unlock();
	return n;
}

struct net_device *base_inetaddr(void *ifa,
				 struct __kernel_sockaddr_storage *out)
{
	const struct in_ifaddr *in = ifa;

	set_v4(out, in->ifa_local);
	return in->ifa_dev->dev;
}

struct net_device *base_inet6addr(void *ifa,
				  struct __kernel_sockaddr_storage *out)
{
	const struct inet6_ifaddr *in6 = ifa;

	set_v6(out, &in6->addr, in6->idev->dev);
	return in6->idev->dev;
}
