"""What only POSIX systems have, as far as a program may use it: the list that tests look for."""

from typing import Final

MODULES: Final = frozenset(
    {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES: Final = {
    "os": _words(
        """
        chown chroot ctermid fchdir fchmod fchown fdatasync fork forkpty fpathconf fstatvfs
        getegid geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority
        getresgid getresuid getsid getuid getxattr initgroups killpg lchown listxattr lockf
        login_tty major makedev memfd_create minor mkfifo mknod nice openpty pathconf
        posix_fadvise posix_fallocate posix_openpt posix_spawn posix_spawnp POSIX_SPAWN_CLOSE
        POSIX_SPAWN_DUP2 POSIX_SPAWN_OPEN pread preadv pwrite pwritev readv register_at_fork
        removexattr sched_getaffinity sched_get_priority_max sched_setaffinity sched_yield
        sendfile setegid seteuid setgid setgroups setpgid setpriority setregid setresgid
        setresuid setreuid setsid setuid setxattr statvfs sync tcgetpgrp tcsetpgrp ttyname
        uname wait wait3 wait4 waitid writev WCONTINUED WEXITSTATUS WIFCONTINUED WIFEXITED
        WIFSIGNALED WIFSTOPPED WNOHANG WSTOPSIG WTERMSIG WUNTRACED
        O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK
        O_PATH O_RSYNC O_SYNC O_TMPFILE
        """
    ),
    "signal": _words(
        """
        SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGHUP SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF
        SIGPWR SIGQUIT SIGSTOP SIGSYS SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2
        SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ alarm getitimer pause pthread_kill pthread_sigmask
        setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo
        """
    ),
    "socket": frozenset({"AF_UNIX", "CMSG_LEN", "SCM_RIGHTS", "recv_fds", "send_fds"}),
    "time": frozenset(
        {
            "CLOCK_BOOTTIME",
            "CLOCK_MONOTONIC",
            "CLOCK_REALTIME",
            "clock_gettime",
            "pthread_getcpuclockid",
            "tzset",
        }
    ),
}

# Arguments that Windows refuses.
KEYWORDS: Final = _words(
    """
    dir_fd dst_dir_fd extra_groups group pass_fds preexec_fn process_group src_dir_fd
    start_new_session umask user
    """
)
# The functions to which some of those words mean something else.
CALLS_WITH_KEYWORDS: Final = frozenset({"os", "subprocess", "shutil"})
