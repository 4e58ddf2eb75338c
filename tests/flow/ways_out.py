"""A program that tries known ways out of a sandbox, and says of each whether it gained anything.

It is started inside, with the path of a file of facts about what lies outside, and prints one JSON object: a name for
each way, and what was gained by it, or null. Nothing is harmed by a way that is open: files are opened and closed,
and calls are made with arguments that do nothing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import socket
import stat
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
NONE = ctypes.c_ulong(0)
DESCRIPTORS = [int(name) for name in os.listdir("/proc/self/fd")]
FACTS = json.loads(Path(sys.argv[1]).read_text())
TOKEN = FACTS["token"]
COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS)
WAYS: dict[str, Callable[[], object]] = {}


def way(function: Callable[[], object]) -> Callable[[], object]:
    """A way out: what it returns is what was gained; raising `OSError` is being refused."""
    WAYS[function.__name__] = function
    return function


def call(numbers: tuple[int, int], *args: object) -> object:
    """Whether the kernel lets us make this call: anything but a refusal is a gain, whatever it thinks of arguments."""
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(numbers[COLUMN]), *args)
    code = ctypes.get_errno()
    if result >= 0:
        return f"it returned {result}"
    return None if code in REFUSALS else f"it got as far as {errno.errorcode[code]}"


def opened(path: str, flags: int) -> bool:
    """Whether it can be opened; it is closed again at once."""
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        return False
    return True


def files_below(*folders: str) -> Iterator[str]:
    """Every file, without following links and without processes."""
    for folder in folders:
        for place, inner, names in os.walk(folder):
            if place == "/proc":
                inner[:] = [name for name in inner if not name.isdigit() and name not in ("self", "thread-self")]
            for name in names:
                yield f"{place}/{name}"


def some(found: Iterator[str]) -> list[str] | None:
    return list(found)[:20] or None


# Files of the kernel and of the system


@way
def write_core_pattern():
    return opened("/proc/sys/kernel/core_pattern", os.O_WRONLY) or None


@way
def write_modprobe_path():
    return opened("/proc/sys/kernel/modprobe", os.O_WRONLY) or None


@way
def write_sysrq_trigger():
    return opened("/proc/sysrq-trigger", os.O_WRONLY) or None


@way
def write_anywhere_below_proc():
    return some(path for path in files_below("/proc") if opened(path, os.O_WRONLY) and not is_null(path))


@way
def write_anywhere_below_sys():
    return some(path for path in files_below("/sys") if opened(path, os.O_WRONLY) and not is_null(path))


@way
def make_a_control_group():
    return some(place for place, _, _ in os.walk("/sys/fs/cgroup") if made_folder(f"{place}/{TOKEN}"))


@way
def read_what_only_root_may_read_below_proc():
    return some(path for path in FACTS["closed_in_proc"] if opened(path, os.O_RDONLY) and not is_null(path))


@way
def read_what_only_root_may_read_below_sys():
    closed = (path for path in files_below("/sys") if not os.lstat(path).st_mode & 0o004)
    return some(path for path in closed if opened(path, os.O_RDONLY))


@way
def read_the_passwords():
    return some(path for path in ("/etc/shadow", "/etc/gshadow", "/etc/shadow-") if has_content(path))


@way
def read_what_only_root_may_read_in_the_system():
    return some(path for path in FACTS["closed_in_system"] if shows_anything(path))


@way
def read_a_file_of_root_beside_programs():
    return shows_anything(FACTS["closed_file"]) or None


@way
def read_a_folder_of_root_beside_programs():
    return shows_anything(FACTS["closed_folder"]) or shows_anything(f"{FACTS['closed_folder']}/inner") or None


@way
def write_to_the_system():
    folders = ("/usr", "/etc", "/opt", "/usr/bin", "/usr/local/bin", "/lib", FACTS["tools"])
    return some(folder for folder in folders if Path(folder).exists() and made_folder(f"{folder}/{TOKEN}"))


@way
def change_what_is_in_the_system():
    for change in (lambda p: os.chmod(p, 0o755), os.utime, lambda p: os.truncate(p, 10**6)):
        try:
            change("/usr/bin/env")
        except OSError:
            continue
        return True
    return None


@way
def look_into_the_kernel():
    places = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware", "/sys/module")
    return some(place for place in places if os.path.isdir(place) and os.listdir(place))


@way
def leave_a_program_that_runs_as_its_owner():
    Path("mine").write_bytes(b"")
    os.chmod("mine", 0o4755)
    return oct(os.stat("mine").st_mode)


@way
def make_a_program_that_runs_as_its_owner():
    made = os.open("made", os.O_WRONLY | os.O_CREAT, 0o6755)
    os.close(made)
    return oct(os.stat("made").st_mode) if os.stat("made").st_mode & 0o6000 else None


@way
def leave_a_program_that_runs_as_its_owner_by_other_calls():
    Path("other").write_bytes(b"")
    found = [call((91, 52), os.open("other", os.O_RDONLY), 0o4755), call((452, 452), -100, b"other", 0o4755, 0)]
    return [each for each in found if each] or None


@way
def open_by_a_call_whose_mode_no_filter_sees():
    how = struct.pack("QQQ", os.O_WRONLY | os.O_CREAT, 0o4755, 0)
    return call((437, 437), -100, b"how", how, len(how))


@way
def load_a_binary_format():
    return opened("/proc/sys/fs/binfmt_misc/register", os.O_WRONLY) or None


# Processes outside


@way
def signal_an_outside_process():
    if not os.path.exists(f"/proc/{FACTS['victim']}") or is_victim(FACTS["victim"]):
        os.kill(FACTS["victim"], 0)
        return True
    return None


@way
def signal_by_a_descriptor():
    if not os.path.exists(f"/proc/{FACTS['victim']}") or is_victim(FACTS["victim"]):
        fd = os.pidfd_open(FACTS["victim"])
        # pidfd_send_signal, with signal 0
        return call((424, 424), fd, 0, None, 0)
    return None


@way
def trace_an_outside_process():
    seize = 0x4206
    return call_on_victim((101, 117), seize, FACTS["victim"], 0, 0)


@way
def read_the_memory_of_an_outside_process():
    buffer = ctypes.create_string_buffer(16)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 16)
    remote = (ctypes.c_void_p * 2)(FACTS["victim_address"], 16)
    # process_vm_readv
    return call_on_victim((310, 270), FACTS["victim"], local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), NONE)


@way
def open_the_memory_of_an_outside_process():
    return (is_victim(FACTS["victim"]) and opened(f"/proc/{FACTS['victim']}/mem", os.O_RDONLY)) or None


@way
def read_the_environment_of_an_outside_process():
    return some(path for path in of_processes("environ") if holds(path, TOKEN))


@way
def read_the_environment_of_whet():
    return some(path for path in of_processes("environ") if holds(path, FACTS["whet_token"]))


@way
def go_through_the_root_of_a_process():
    return some(path for path in of_processes(f"root{FACTS['outside_file']}") if has_content(path))


@way
def go_through_the_folder_of_an_outside_process():
    if not is_victim(FACTS["victim"]):
        return None
    return shows_anything(f"/proc/{FACTS['victim']}/cwd/") or None


@way
def take_a_descriptor_of_an_outside_process():
    if not is_victim(FACTS["victim"]):
        return None
    # pidfd_getfd
    return call((438, 438), os.pidfd_open(FACTS["victim"]), 0, 0)


@way
def find_an_open_descriptor():
    # As they were at the start; the highest is the one by which they were listed.
    return [fd for fd in sorted(DESCRIPTORS)[:-1] if fd > 2] or None


@way
def change_limits_of_an_outside_process():
    if not is_victim(FACTS["victim"]):
        return None
    # prlimit64, which only asks
    buffer = ctypes.create_string_buffer(16)
    return call((302, 261), FACTS["victim"], 7, None, buffer)


# Sockets and what processes share


@way
def connect_to_an_abstract_socket():
    return connected("\0" + FACTS["abstract_socket"])


@way
def connect_to_a_socket_in_a_folder_outside():
    return connected(FACTS["socket"])


@way
def connect_to_services_of_the_machine():
    sockets = ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
    buses = ("/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/snapd.socket")
    return some(path for path in (*sockets, *buses) if os.path.exists(path))


@way
def look_into_run():
    return some(path for path in files_below("/run") if stat.S_ISSOCK(os.lstat(path).st_mode))


@way
def look_into_the_folders_of_sessions():
    return some(
        path for path in ("/run/user", "/run/lock", "/run/utmp", "/var/log", "/var/lib") if os.path.exists(path)
    )


@way
def use_shared_memory_of_others():
    # shmget, of what the test has made
    return None if libc.shmget(FACTS["ipc_key"], 1, 0) < 0 else True


@way
def use_a_semaphore_of_others():
    return None if libc.semget(FACTS["ipc_key"], 1, 0) < 0 else True


@way
def use_a_message_queue_of_others():
    return None if libc.msgget(FACTS["ipc_key"], 0) < 0 else True


@way
def use_a_posix_message_queue_of_others():
    found = libc.syscall(ctypes.c_long((240, 180)[COLUMN]), FACTS["queue"].encode(), os.O_RDONLY, 0, None)
    return None if found < 0 else True


@way
def see_shared_memory_files():
    return some(path for path in files_below("/dev/shm", "/dev/mqueue") if TOKEN in path)


@way
def fill_the_memory_by_files():
    room = {path: os.statvfs(path) for path in ("/tmp", "/var/tmp", "/dev/shm")}
    return some(path for path, state in room.items() if state.f_blocks * state.f_frsize > 1024**3 or not state.f_blocks)


@way
def write_where_there_is_no_ceiling():
    return some(path for path in ("/", "/dev", "/run", "/var", "/home", "/proc") if made(f"{path}/{TOKEN}"))


@way
def talk_to_the_host_of_a_virtual_machine():
    socket.socket(40, socket.SOCK_STREAM).close()
    return True


@way
def read_raw_packets():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return True


# Mounts and namespaces


@way
def mount_a_file_system():
    return call((165, 40), b"none", b"/tmp", b"tmpfs", 0, None)


@way
def mount_a_folder_elsewhere():
    return call((165, 40), b"/etc", b"/tmp", None, 4096, None)


@way
def mount_the_system_writable():
    return call((165, 40), None, b"/usr", None, 4096 | 32, None)


@way
def take_a_mount_away():
    covered = FACTS["hidden_folder"].encode()
    return call((166, 39), covered, 2) or call((166, 39), b"/proc/sys", 2)


@way
def mount_the_new_way():
    numbers = ((430, 430), (428, 428), (442, 442), (433, 433))
    return some(str(number[0]) for number in numbers if call(number, -100, b"/", 0, 0, 0))


@way
def exchange_the_root():
    return call((155, 41), b"/tmp", b"/tmp")


@way
def change_the_root():
    return call((161, 51), b"/tmp")


@way
def make_a_user_namespace():
    return in_child(lambda: call((272, 97), 0x10000000))


@way
def make_other_namespaces():
    flags = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000, 0x80)
    return some(hex(flag) for flag in flags if in_child(lambda flag=flag: call((272, 97), flag)))


@way
def clone_into_a_user_namespace():
    pid = libc.syscall(ctypes.c_long((56, 220)[COLUMN]), 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    return pid > 0 or None


@way
def clone_the_new_way():
    return call((435, 435), struct.pack("8Q", 0x10000000, 0, 0, 0, 0, 0, 0, 0), 7)


@way
def enter_another_namespace():
    found = []
    for kind in ("user", "mnt", "net", "pid", "ipc"):
        fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
        found += [kind] if in_child(lambda fd=fd: call((308, 268), fd, 0)) else []
        os.close(fd)
    return found or None


# Devices and terminals


@way
def make_a_device():
    for kind, number in ((stat.S_IFBLK, os.makedev(8, 0)), (stat.S_IFCHR, os.makedev(1, 1))):
        try:
            os.mknod("device", kind | 0o600, number)
        except OSError:
            continue
        return True
    return None


@way
def find_a_device():
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    paths = (path for path in files_below("/dev") if not path.startswith("/dev/pts/"))
    return some(path for path in paths if is_device(path) and os.path.basename(path) not in harmless)


@way
def open_the_memory_of_the_machine():
    places = ("/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/vda")
    return some(path for path in places if opened(path, os.O_RDONLY) and not is_null(path))


@way
def type_into_the_terminal():
    return some(str(path) for path in terminals() if typed(path, termios.TIOCSTI, b"x"))


@way
def use_the_menus_of_the_console():
    return some(str(path) for path in terminals() if typed(path, 0x541C, b"\2"))


@way
def talk_to_ports_of_the_processor():
    return None if platform.machine() != "x86_64" else call((172, 0), 3) or call((173, 0), 0x80, 1, 1)


# Keys


@way
def find_a_key_of_the_session():
    return key_found(-3)


@way
def find_a_key_of_the_user():
    return key_found(-4)


@way
def find_a_key_of_the_users_session():
    return key_found(-5)


@way
def read_which_keys_there_are():
    return holds("/proc/keys", TOKEN) or None


@way
def add_a_key_for_others_to_find():
    return call((248, 217), b"user", b"whet-test-left", b"x", 1, -4)


# Calls that are nobody's business inside


@way
def run_code_in_the_kernel():
    return call((321, 280), 0, None, 0)


@way
def measure_the_kernel():
    return call((298, 241), None, 0, -1, -1, 0)


@way
def stop_the_kernel_at_page_faults():
    return call((323, 282), 0)


@way
def submit_requests_by_rings():
    return call((425, 425), 1, None)


@way
def load_a_module():
    return call((175, 105), None, 0, b"") or call((313, 273), -1, b"", 0) or call((176, 106), b"none-such", 0)


@way
def load_another_kernel():
    return call((246, 104), 0, 0, None, 0) or call((320, 294), -1, -1, 0, None, 0)


@way
def open_by_a_handle():
    return call((304, 265), -1, None, 0)


@way
def read_the_log_of_the_kernel():
    return call((103, 116), 3, ctypes.create_string_buffer(64), 64)


@way
def set_the_clock():
    wrong = struct.pack("qq", 0, -1)
    return call((227, 112), 0, wrong) or call((164, 170), wrong, None)


@way
def name_the_machine():
    return call((170, 161), b"x", 0) or call((171, 162), b"x", 0)


@way
def switch_swap_and_accounting():
    return call((167, 224), b"/none-such", 0) or call((168, 225), b"/none-such") or call((163, 89), b"/none-such")


@way
def restart_the_machine():
    return call((169, 142), 0, 0, 0, None)


@way
def make_memory_executable_by_personality():
    return in_child(lambda: call((135, 92), 0x0400000))


# Rights


@way
def become_somebody_else():
    for change in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
        try:
            change()
        except OSError:
            continue
        return True
    return None


@way
def have_a_capability():
    lines = Path("/proc/self/status").read_text().split("\n")
    return some(line for line in lines if line.startswith(("CapEff", "CapPrm", "CapAmb")) and int(line.split()[1], 16))


@way
def gain_rights_by_a_program():
    get_no_new_privileges = 39
    return None if libc.prctl(get_no_new_privileges, 0, 0, 0, 0) == 1 else True


@way
def become_root_by_a_program():
    for program in ("/usr/bin/su", "/bin/su", "/usr/bin/sudo", "/usr/bin/pkexec"):
        if os.path.exists(program):
            argv = [program, "-n", "id", "-u"] if program.endswith("sudo") else [program, "-c", "id -u"]
            ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
            if ran.stdout.strip() == b"0":
                return program
    return None


# What belongs to whet and to its user


@way
def read_the_settings_and_the_suite():
    return some(path for path in FACTS["own_files"] if has_content(path))


@way
def read_a_file_of_the_user():
    return has_content(FACTS["outside_file"]) or None


@way
def read_it_by_a_link():
    os.symlink(FACTS["outside_file"], "link")
    return has_content("link") or None


@way
def read_it_by_another_name():
    os.link(FACTS["outside_file"], "name")
    return has_content("name") or None


@way
def read_what_is_hidden():
    return shows_anything(FACTS["hidden_folder"]) or None


@way
def read_what_is_hidden_by_a_link():
    os.symlink(FACTS["hidden_folder"], "hidden-link")
    return shows_anything("hidden-link/") or None


@way
def move_what_is_hidden():
    os.rename(FACTS["hidden_folder"], f"{FACTS['hidden_folder']}-moved")
    return True


@way
def write_beside_what_is_hidden():
    return made_folder(f"{os.path.dirname(FACTS['hidden_folder'])}/{TOKEN}") or None


@way
def go_up_from_the_workspace():
    return some(path for path in ("..", "../..") if set(os.listdir(path)) & set(FACTS["own_names"]))


@way
def find_the_user_in_the_environment():
    return some(name for name, value in os.environ.items() if FACTS["whet_token"] in value)


# Helpers


def is_null(path: str) -> bool:
    found = os.stat(path)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)


def is_device(path: str) -> bool:
    return stat.S_ISCHR(os.stat(path).st_mode) or stat.S_ISBLK(os.stat(path).st_mode)


def made_folder(path: str) -> bool:
    try:
        os.mkdir(path)
    except OSError:
        return False
    os.rmdir(path)
    return True


def has_content(path: str) -> bool:
    try:
        return bool(Path(path).read_bytes())
    except OSError:
        return False


def holds(path: str, text: str) -> bool:
    try:
        return text.encode() in Path(path).read_bytes()
    except OSError:
        return False


def shows_anything(path: str) -> bool:
    """Whether a file has content, or a folder entries."""
    try:
        return bool(os.listdir(path)) if os.path.isdir(path) else has_content(path)
    except OSError:
        return False


def of_processes(name: str) -> list[str]:
    """The file of that name of every process but this one."""
    own = str(os.getpid())
    return [f"/proc/{pid}/{name}" for pid in os.listdir("/proc") if pid.isdigit() and pid != own]


def is_victim(pid: int) -> bool:
    """Whether the process of that number is the one outside; inside, numbers are given anew."""
    return holds(f"/proc/{pid}/cmdline", FACTS["victim_name"])


def call_on_victim(numbers: tuple[int, int], *args: object) -> object:
    if os.path.exists(f"/proc/{FACTS['victim']}") and not is_victim(FACTS["victim"]):
        return None
    gained = call(numbers, *args)
    return None if gained == "it got as far as ESRCH" else gained


def connected(address: str) -> bool | None:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(5)
        made.connect(address)
        return TOKEN.encode() in made.recv(1000) or None


def in_child(act: Callable[[], object]) -> bool:
    """Whether *act* gains something; in a process of its own, which it may change."""
    pid = os.fork()
    if pid == 0:
        os._exit(1 if act() else 0)
    return os.waitpid(pid, 0)[1] != 0


def made(path: str) -> bool:
    """Whether a file can be made there; it is removed at once."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.unlink(path)
    except OSError:
        return False
    return True


def terminals() -> list[int | str]:
    return [0, 1, 2, "/dev/tty", "/dev/console", FACTS["terminal"]]


def typed(place: int | str, request: int, data: bytes) -> bool:
    try:
        fd = place if isinstance(place, int) else os.open(place, os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(fd, request, data)
    except OSError:
        return False
    return True


def key_found(keyring: int) -> object:
    search = 10
    found = libc.syscall(ctypes.c_long((250, 219)[COLUMN]), search, keyring, b"user", FACTS["key"].encode(), 0)
    return found if found > 0 else None


def tried(function: Callable[[], object]) -> object:
    try:
        return function()
    except OSError:
        return None


if __name__ == "__main__":
    wanted = FACTS["only"] or list(WAYS)
    print(json.dumps({name: tried(WAYS[name]) for name in wanted}))
