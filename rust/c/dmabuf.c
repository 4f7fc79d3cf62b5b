// SPDX-License-Identifier: GPL-2.0
/*
 * dmabufs that the CPU accesses for as long as they are registered.
 *
 * ib_umem_dmabuf_get_pinned() maps a dmabuf for a device with DMA, as a list of bus
 * addresses. This driver has no DMA, and needs an address of the kernel. Each step to
 * that is exported, but no function has them all. They are C because they read fields
 * of three structures, which the C compiler checks against the kernel.
 *
 * It breaks with a change of what keeps a mapped buffer where it is: today the
 * attachment, unless the exporter has pin().
 */

#include <linux/dma-buf.h>
#include <linux/iosys-map.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

#include "rust_c.h"

MODULE_IMPORT_NS("DMA_BUF");

/*
 * Maps a dmabuf, to be accessed by the CPU until soft_dmabuf_put(). The attachment
 * keeps it where it is. An exporter that pins only on demand may move it.
 */
struct dma_buf_attachment *soft_dmabuf_get(struct ib_device *dev, int fd, bool write,
					   void **addr, size_t *len)
{
	struct dma_buf *buf = dma_buf_get(fd);
	struct dma_buf_attachment *attach;
	struct iosys_map map;
	int ret;

	if (IS_ERR(buf))
		return ERR_CAST(buf);
	ret = -EACCES;
	if (write && !(buf->file->f_mode & FMODE_WRITE))
		goto put;
	ret = -EOPNOTSUPP;
	if (!buf->ops->vmap || buf->ops->pin)
		goto put;
	attach = dma_buf_attach(buf, &dev->dev);
	ret = PTR_ERR_OR_ZERO(attach);
	if (ret)
		goto put;
	ret = dma_buf_vmap_unlocked(buf, &map);
	if (ret)
		goto detach;
	ret = -EOPNOTSUPP;
	if (map.is_iomem)
		goto unmap;
	ret = dma_buf_begin_cpu_access(buf, DMA_BIDIRECTIONAL);
	if (ret)
		goto unmap;
	*addr = map.vaddr;
	*len = buf->size;
	return attach;

unmap:
	dma_buf_vunmap_unlocked(buf, &map);
detach:
	dma_buf_detach(buf, attach);
put:
	dma_buf_put(buf);
	return ERR_PTR(ret);
}

void soft_dmabuf_put(struct dma_buf_attachment *attach, void *addr)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(addr);
	struct dma_buf *buf = attach->dmabuf;

	dma_buf_end_cpu_access(buf, DMA_BIDIRECTIONAL);
	dma_buf_vunmap_unlocked(buf, &map);
	dma_buf_detach(buf, attach);
	dma_buf_put(buf);
}
