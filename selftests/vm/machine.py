# SPDX-License-Identifier: MIT
"""The kernels of the VM tests, and the machines that they boot in: QEMU, or a process (user-mode Linux).

The rule: host.sh defines the names of kernels and their places in the cache; the guest decides what runs in a
machine.
"""
import os
import shutil
import signal
import socket
import subprocess

VM_DIR = os.path.dirname(os.path.realpath(__file__))
REPO = os.path.realpath(os.path.join(VM_DIR, "../.."))
CACHE = os.environ.setdefault("KVBLK_CACHE", os.path.expanduser("~/.cache/kvblk"))
KERNELS = ["newest", "6.12", "6.12-p2p", "debug", "debug-smp", "uml"]
SHAPE = {"disks": "0", "disk-size": "512M", "mem": "2G", "cpus": "2", "net": "0", "pci": "", "append": "", "share": ""}
# pci=: the devices behind each PCIe switch, each switch on a root port of its own. The last entry is the CPU, which
# decides whether the kernel permits P2P through the host bridge: on AMD from family 23 on. QEMU's bridge is not on the
# kernel's list.
SWITCHES = {
    "switch": (["disk0", "disk1", "gpu"], "family=6"),
    "two-gpus": (["disk0", "disk1", "gpu", "gpu"], "family=6"),
    "two-switches": (["disk0", "gpu"], ["disk1"], "vendor=AuthenticAMD,family=25"),
    "unreachable": (["disk0", "gpu"], ["disk1"], "family=6"),
}
CMB_MB = HBM_MB = 64
# Seconds of a boot on an idle machine without KVM.
IDLE_BOOT = {"debug": 5, "uml": 3, "debug-smp": 30}
# additional seconds for systemd, with kvblk.boot=
IDLE_SYSTEMD = 14


class Died(Exception):
    """The machine ended or stopped responding."""


class Absent(Exception):
    """Something that a test needs from the network is not available."""


def host(function):
    """Call a function of host.sh, the only place that makes names in the cache."""
    return subprocess.run(["bash", "-ec", f'. "$1"; {function}', "-", f"{VM_DIR}/host.sh"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def amount(text):
    """Parse a number with an optional M or G."""
    unit = {"M": 20, "G": 30}.get(text[-1])
    return int(text[:-1]) << unit if unit else int(text)


class Kernel:
    """A kernel of KERNELS: the image, and what its machines need in addition."""

    def __init__(self, name, tmp):
        self.name = name
        # factor for the time limits of tests, relative to a stock kernel
        self.slow = 4 if name == "debug-smp" else 1
        self.idle_boot = IDLE_BOOT.get(name, 5)
        self.root = host("root_fs")
        self.build = host("build_root")
        self.release = host(f"release_of {name}")
        self.uml = name in ("debug", "uml")
        if self.uml:
            self.image = host(f"built_kernel {name}") + "/linux"
            return
        stage, self.initrd = f"{tmp}/initrd-{name}.d", f"{tmp}/initrd-{name}"
        os.makedirs(f"{stage}/modules/boot")
        os.makedirs(f"{stage}/bin")
        if name in ("6.12-p2p", "debug-smp"):
            self.image = host(f"built_kernel {name}") + "/arch/x86/boot/bzImage"
        else:
            self.image = f"{self.root}/boot/vmlinuz-{self.release}"
            self.add_modules(f"{stage}/modules", ["virtio_pci", "9pnet_virtio", "9p", "overlay"])
            self.add_modules(f"{stage}/modules/boot", ["nvme", "ext4"])
        shutil.copy(f"{self.root}/usr/bin/busybox", f"{stage}/bin/busybox")
        shutil.copy(f"{VM_DIR}/init", f"{stage}/init")
        subprocess.run(f"cd {stage} && find . | cpio --quiet -o -H newc | zstd -1 -q -o {self.initrd}", shell=True, check=True)

    def add_modules(self, directory, names):
        """Add the few modules that the initramfs needs to mount the root."""
        paths = []
        for name in names:
            lines = subprocess.run(["modprobe", "-d", self.root, "-S", self.release, "--show-depends", name], check=True, text=True,
                                   stdout=subprocess.PIPE).stdout.splitlines()
            paths += [line.split()[1] for line in lines if line.startswith("insmod") and line.split()[1] not in paths]
        for number, path in enumerate(paths):
            with open(f"{directory}/{number:02}-{os.path.basename(path).split('.')[0]}.ko", "wb") as out:
                subprocess.run(["xz", "-dc", path] if path.endswith(".xz") else ["cat", path], stdout=out, check=True)


class Machine:
    """A running kernel and the line to its first process. shell: "", 1 or command; log and share: directories of the
    host; wires: sockets for the frames of wire0, wire1, ..., only with user-mode Linux.
    """
    running = set()

    def __init__(self, kernel, shape, directory, accel, shell="", share="", log="", qemu="", nice=0, cpu=0, wires=()):
        self.kernel, self.dir, self.slow = kernel, directory, kernel.slow
        self.idle_boot = kernel.idle_boot + (IDLE_SYSTEMD if "kvblk.boot=" in shape["append"] else 0)
        self.console = f"{directory}/console"
        self.log = log or f"{directory}/log"
        os.makedirs(self.log, exist_ok=True)
        ours, theirs = socket.socketpair()
        self.line = ours.makefile("rw", buffering=1)
        self.sock = ours
        append = (f"panic=-1 oops=panic loglevel={4 if shell else 6} log_buf_len=4M null_blk.nr_devices=0 kvblk.kernel={kernel.name} "
                  f"kvblk.slow={kernel.slow} kvblk.pci={shape['pci']} {shape['append']}")
        if shell:
            append += f" quiet kvblk.shell={shell}"
        append += f" kvblk.wires={','.join(str(wire.fileno()) for wire in wires)}"
        disks = [self.disk(i, shape) for i in range(max(int(shape["disks"]), 2 if shape["pci"] else 0))]
        if kernel.uml:
            # pin all of its processes to one CPU: they alternate at each system call of the guest, and waking another
            # CPU takes longer than the call
            cpus = sorted(os.sched_getaffinity(0), reverse=True)
            cmd = ["taskset", "-c", str(cpus[cpu % len(cpus)])] + self.user_mode(shape, append, disks, theirs.fileno(), shell, share)
        else:
            cmd = self.qemu(shape, append, disks, theirs.fileno(), shell, share, accel, "-icount" in qemu) + qemu.split()
        # kill the machine when this script ends for any reason
        cmd = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", str(nice)] + cmd
        self.said = self.console if kernel.uml else f"{directory}/qemu"
        terminal = None if shell else open(self.said, "a")
        self.process = subprocess.Popen(cmd, pass_fds=[theirs.fileno(), *(wire.fileno() for wire in wires)], stdout=terminal,
                                        stderr=subprocess.STDOUT, stdin=None if shell else subprocess.DEVNULL, start_new_session=not shell)
        theirs.close()
        Machine.running.add(self)

    def disk(self, number, shape):
        path = f"{self.dir}/disk{number}"
        if not os.path.exists(path):
            with open(path, "wb") as disk:
                disk.truncate(amount(shape["disk-size"]))
        return path

    def shares(self, share):
        """Return the directories of the host that the guest sees, by mount point; all but /log read-only."""
        shares = {"kvblk": REPO, "build": self.kernel.build, "log": self.log}
        return dict(shares, share=share) if share else shares

    def user_mode(self, shape, append, disks, line, shell, share):
        """Return the command line of user-mode Linux. Its root, by hostfs, is a mount namespace of its own: see uml."""
        shares = [f"{name}={path}" for name, path in dict(self.shares(share), disks=self.dir).items()]
        return [f"{VM_DIR}/uml", self.kernel.root, self.kernel.release, self.kernel.image, *shares, "--",
                f"mem={shape['mem']}", "seccomp=on", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw",
                "init=/kvblk/selftests/vm/guest", "con=null", "con0=fd:0,fd:1" if shell == "1" else "con0=null,fd:1",
                f"con1=fd:{line}", "nvme_tcp.wq_unbound=1",
                # a machine that a test stops is not locked up: the limit is twice this
                "watchdog_thresh=60", *append.split(),
                *(f"ubd{i}=/disks/{os.path.basename(path)}" for i, path in enumerate(disks))]

    def qemu(self, shape, append, disks, line, shell, share, accel, counts):
        tcg = f"tcg,thread={'single' if shape['cpus'] == '1' or counts else 'multi'}"
        *switches, cpu = SWITCHES.get(shape["pci"], ("",))
        # a busy host may not run an emulated CPU for longer than the kernel's default limits
        watchdogs = "" if accel == "kvm" else ("watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 workqueue.watchdog_thresh=120 "
                                               "sysctl.kernel.hung_task_timeout_secs=120")
        # without these features emulation takes a fifth less time; instruction counts need the complete CPU
        model = "max" if shell else "max,-erms,-fsrm,-la57,-smap"
        cmd = ["qemu-system-x86_64", "-M", "q35", "-accel", "kvm" if accel == "kvm" else tcg, "-cpu", ",".join([model, cpu]).strip(","),
               "-smp", shape["cpus"], "-m", shape["mem"], "-display", "none", "-vga", "none", "-no-reboot", "-nodefaults",
               "-kernel", self.kernel.image, "-initrd", self.kernel.initrd, "-device", "virtio-rng-pci",
               "-append", f"console=ttyS0 mitigations=off nokaslr audit=0 apparmor=0 no_timer_check tsc=reliable {watchdogs} {append}"
               + (" kvblk.share=1" if share else ""),
               "-serial", "mon:stdio" if shell else f"file:{self.console}",
               "-chardev", f"socket,id=line,fd={line}", "-device", "virtio-serial-pci",
               "-device", "virtserialport,chardev=line,name=kvblk"]
        for tag, path in dict(self.shares(share), root=self.kernel.root).items():
            cmd += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap"
                    + ("" if tag == "log" else ",readonly=on")]
        if shape["net"] == "1":
            cmd += ["-nic", "user,restrict=on,model=virtio-net-pci"]
        return cmd + self.drives(disks, switches)

    @staticmethod
    def drives(disks, switches):
        """Return the arguments for NVMe drives with serials disk0.. and for pci=: the switches, the GPUs, the place of
        each drive. With pci= drive 0 has a CMB.
        """
        args, bus, ports = [], {}, 0
        for i, members in enumerate(switches):
            args += ["-device", f"pcie-root-port,id=rp{i},chassis={100 + i},slot={100 + i}",
                     "-device", f"x3130-upstream,id=up{i},bus=rp{i}"]
            for member in members:
                ports += 1
                args += ["-device", f"xio3130-downstream,id=dn{ports},bus=up{i},chassis={ports},slot={ports}"]
                if member == "gpu":
                    args += ["-object", f"memory-backend-ram,id=hbm{ports},size={HBM_MB}M,share=on",
                             "-device", f"ivshmem-plain,memdev=hbm{ports},bus=dn{ports}"]
                else:
                    bus[member] = f",bus=dn{ports}" + (f",cmb_size_mb={CMB_MB}" if member == "disk0" else "")
        for i, path in enumerate(disks):
            args += ["-drive", f"file={path},if=none,id=d{i},format=raw,cache=unsafe,discard=unmap",
                     "-device", f"nvme,drive=d{i},serial=disk{i}{bus.get(f'disk{i}', '')}"]
        return args

    def read(self, seconds):
        """Return the next line from the guest as a list of words."""
        self.sock.settimeout(seconds)
        try:
            line = self.line.readline()
        except (OSError, ValueError) as error:
            raise Died("no answer in time") from error
        if not line:
            raise Died("the VM ended")
        return line.split()

    def send(self, *words):
        try:
            self.sock.sendall((" ".join(words) + "\n").encode())
        except OSError as error:
            raise Died("the VM ended") from error

    def kill(self):
        """Kill the machine with all its processes, as a power cut would."""
        if self.process.poll() is None:
            if os.getpgid(self.process.pid) == self.process.pid:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
        Machine.running.discard(self)
        self.line.close()
        self.sock.close()

    def console_text(self):
        """Return the console output of kernel and QEMU, from the first test on."""
        lines = []
        for path in dict.fromkeys((self.said, self.console)):
            if os.path.exists(path):
                with open(path, errors="replace") as text:
                    lines += text.readlines()
        return lines[next((i for i, line in enumerate(lines) if "kvblk-vm: begin" in line), 0):]

    def console_tail(self, lines=80):
        text = self.console_text()
        begin = max((i for i, line in enumerate(text) if "kvblk-vm: begin" in line), default=0)
        return "".join(text[max(begin, len(text) - lines):])
