# SPDX-License-Identifier: MIT
"""The machines of a test with nodes=: user-mode kernels joined by Ethernet, whose wires are sockets of this process.

The rule: the first node runs the test and says what happens to the others; nothing of them is left on the host.
"""
import os
import signal
import socket

SO_SNDBUFFORCE = 32  # Linux, not in Python: more than net.core.wmem_max, for some frames in flight
SIGNALS = {"stop": signal.SIGSTOP, "go": signal.SIGCONT}


class Nodes:
    """Nodes by name. start(name, number, wires, append) boots a machine."""

    def __init__(self, names, start):
        self.names, self.start, self.machines = names, start, {}
        self.wires = {name: [] for name in names}
        for name in names[1:]:
            for node, end in zip((names[0], name), socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)):
                end.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 8 << 20)
                self.wires[node].append(end)

    def boot(self, name):
        for wire in self.wires[name]:
            # no frame of its last life may reach the node
            try:
                while wire.recv(1 << 16, socket.MSG_DONTWAIT):
                    pass
            except BlockingIOError:
                pass
        self.machines[name] = self.start(name, self.names.index(name), self.wires[name],
                                         f"kvblk.node={name} kvblk.nodes={','.join(self.names)}")

    def ask(self, verb, name, argument, seconds):
        """Do what the test asks for: "run" the file ARGUMENT of /log on a node, "kill", "boot", "stop" or "go". Returns
        the exit code.
        """
        machine = self.machines[name]
        if verb == "run":
            machine.send("script", argument)
            return machine.read(seconds)[1]
        if verb == "kill":
            machine.kill()
        elif verb == "boot":
            self.boot(name)
        else:
            os.killpg(machine.process.pid, SIGNALS[verb])
        return "0"

    def kill(self):
        for machine in self.machines.values():
            machine.kill()
        for ends in self.wires.values():
            for end in ends:
                end.close()
