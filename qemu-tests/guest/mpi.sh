# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# OpenMPI between the guests: guest a runs mpirun, which starts ranks in both of them.

# mpi_agent COMMAND: makes a program that takes the place of ssh, by which mpirun starts its daemon
# in the other guest: it writes that command to the file COMMAND. The daemon wants the program, too,
# though it does not run it.
mpi_agent() {
	cat >/tmp/agent <<-END
		#!/bin/sh
		shift
		echo "\$*" >$1.new
		mv $1.new $1
	END
	chmod +x /tmp/agent
}

# mpi_run COMMAND RANKS ARGUMENT...: in guest a, runs mpirun with RANKS ranks in each guest.
mpi_run() {
	local ranks=$2
	mpi_agent "$1"
	shift 2
	mpirun --allow-run-as-root --prtemca plm_ssh_agent /tmp/agent --host "$A4:$ranks,$B4:$ranks" \
		--map-by "ppr:$ranks:node:OVERSUBSCRIBE" --bind-to none "$@"
}

# mpi_join COMMAND: in guest b, runs the daemon of mpi_run until that ends.
mpi_join() {
	mpi_agent "$1"
	until_true 60 [ -e "$1" ]
	bash -c "$(cat "$1")"
}

# What OpenMPI takes to use the device. Without these choices it takes TCP when it cannot.
# shellcheck disable=SC2034 # for the cases
MPI_DEVICE=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm')
