//! What a call is held to beyond what the pod forbids, and that it is said whether it holds.

use glovebox::call::{Held, Outcome};

use crate::container::Recipe;
use crate::session::{Sandbox, access, command, shell};

/// What the kernel of this machine can do: Landlock may be missing.
fn says_landlock() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|all| all.contains("landlock"))
}

#[test]
fn writing_is_held_to_where_it_was_allowed() {
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    for name in ["open", "shut"] {
        std::fs::create_dir(format!("{dir}/{name}")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(format!("{dir}/{name}"), mode).unwrap();
    }
    let sandbox = Sandbox::idle(recipe);
    let mut exec = shell(&format!(
        "echo x >{dir}/open/a && echo wrote; echo x >{dir}/shut/a || echo shut; mkdir {dir}/shut/d || echo shut
         mv {dir}/open/a {dir}/shut/a || echo shut; echo x >/dev/null && echo null"
    ));
    exec.access = Some(access(Some(&[&format!("{dir}/open")]), true));
    let ended = sandbox.run(&exec);
    let held = ended.result.write.unwrap();
    println!("Landlock here: {held:?}");
    assert!(!says_landlock() || held == Held::Enforced);
    if held == Held::Enforced {
        assert_eq!(ended.stdout, "wrote\nshut\nshut\nshut\nnull\n", "{}", ended.stderr);
    }
    assert_eq!(ended.result.network, None);
    exec.access = Some(access(Some(&[&format!("{dir}/missing")]), true));
    let result = sandbox.run(&exec).result;
    assert_eq!(result.outcome, Outcome::NotStarted);
    assert!(result.message.unwrap().contains("missing can't be opened"));
}

#[test]
fn without_a_network_only_local_sockets_can_be_had() {
    let sandbox = Sandbox::idle(Recipe::new());
    let script = "import socket as s\nfor f in (s.AF_INET, s.AF_INET6, s.AF_NETLINK, s.AF_PACKET, s.AF_VSOCK, s.AF_UNIX):\n try: s.socket(f, s.SOCK_STREAM if f != s.AF_NETLINK else s.SOCK_RAW); print(int(f), 'had')\n except OSError as e: print(int(f), e.errno)\ns.socketpair()\nprint('pair')";
    let mut exec = command(&["python3", "-c", script]);
    exec.access = Some(access(None, false));
    let ended = sandbox.run(&exec);
    assert_eq!((ended.result.network, ended.result.write), (Some(Held::Enforced), None));
    if ended.result.outcome == Outcome::NotStarted {
        println!("no python3 here: nothing was tried");
        return;
    }
    assert_eq!(ended.stdout, "2 13\n10 13\n16 13\n17 13\n40 13\n1 had\npair\n", "{}", ended.stderr);
}
