//! The init step on real directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

use glovebox::report::parse_report;

use crate::container::Scratch;

struct Pod {
    scratch: Scratch,
}

impl Pod {
    fn new() -> Self {
        let scratch = Scratch::new();
        for directory in ["agent", "home", "workspace"] {
            fs::create_dir(scratch.path().join(directory)).unwrap();
        }
        scratch.file("log", "", 0o666);
        Self { scratch }
    }

    fn init(&self, more: &[&str]) -> Output {
        let at = |name: &str| self.scratch.path().join(name);
        Command::new(env!("CARGO_BIN_EXE_glovebox-agent"))
            .args(["init", "--isolation", "SharedKernel"])
            .arg("--agent-dir")
            .arg(at("agent"))
            .arg("--home-dir")
            .arg(at("home"))
            .arg("--workspace")
            .arg(at("workspace"))
            .arg("--termination-log")
            .arg(at("log"))
            .args(more)
            .output()
            .unwrap()
    }

    fn mode(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.scratch.path().join(name)).unwrap().permissions().mode() & 0o7777
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.path().join(name)).unwrap()
    }
}

#[test]
fn it_prepares_the_pod_and_may_be_repeated() {
    let pod = Pod::new();
    let more = [
        "--home-mountpoint",
        ".cache",
        "--home-mountpoint",
        ".config/pip",
        "--workspace-mountpoint",
        ".git/hooks",
        "--git-safe-directory",
        "/data",
    ];
    for _ in 0..2 {
        let output = pod.init(&more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
    assert_eq!(pod.mode("agent/glovebox-agent"), 0o755);
    for directory in
        ["home/.cache", "home/.config", "home/.config/pip", "workspace/.git", "workspace/.git/hooks"]
    {
        assert_eq!(pod.mode(directory), 0o755, "{directory}");
    }
    for file in [".gitconfig", ".bashrc", ".profile", ".bash_profile", ".zshrc", ".npmrc"] {
        assert_eq!(pod.mode(&format!("home/{file}")), 0o644, "{file}");
    }
    assert!(pod.read("home/.bashrc").is_empty());
    assert!(pod.read("home/.gitconfig").contains("directory = \"/data\""));
    let installed =
        Command::new(pod.scratch.path().join("agent/glovebox-agent")).arg("--version").output().unwrap();
    assert!(installed.status.success());
    assert_eq!(fs::read_dir(pod.scratch.path().join("agent")).unwrap().count(), 1, "no partial copy is left");
}

#[test]
fn the_report_says_what_this_kernel_is() {
    let pod = Pod::new();
    assert!(pod.init(&[]).status.success());
    let line = pod.read("log");
    assert!(line.len() <= 1024 && line.lines().count() == 1, "{line}");
    let report = parse_report(&line).unwrap();
    assert_eq!(report.boot_id, fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim());
    assert!(!report.no_new_privs);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains(&format!("CapEff:\t{}", report.cap_eff)), "{line}");
    let restricted = Command::new("setpriv")
        .args(["--no-new-privs", env!("CARGO_BIN_EXE_glovebox-agent")])
        .args(["init", "--isolation", "UserspaceKernel", "--agent-dir"])
        .arg(pod.scratch.path().join("agent"))
        .arg("--home-dir")
        .arg(pod.scratch.path().join("home"))
        .arg("--workspace")
        .arg(pod.scratch.path().join("workspace"))
        .arg("--termination-log")
        .arg(pod.scratch.path().join("log"))
        .status()
        .unwrap();
    assert!(restricted.success());
    assert!(parse_report(&pod.read("log")).unwrap().no_new_privs);
}

#[test]
fn a_symbolic_link_in_the_way_is_refused_and_its_target_untouched() {
    for link in ["home/.gitconfig", "home/.cache"] {
        let pod = Pod::new();
        let target = pod.scratch.file("target", "precious", 0o644);
        symlink(&target, pod.scratch.path().join(link)).unwrap();
        let output = pod.init(&["--home-mountpoint", ".cache"]);
        assert_eq!(output.status.code(), Some(70), "{link}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(link), "{link}");
        assert_eq!(pod.read("target"), "precious");
        assert!(pod.read("log").is_empty(), "no report without the work");
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let pod = Pod::new();
    fs::remove_dir(pod.scratch.path().join("agent")).unwrap();
    let output = pod.init(&[]);
    assert_eq!(output.status.code(), Some(70));
    assert!(String::from_utf8_lossy(&output.stderr).contains("agent/glovebox-agent"));
}
