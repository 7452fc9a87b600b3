//! Calls that do not want to end, and sessions that are gone: the whole tree is killed, and nothing else is.

use std::time::{Duration, Instant};

use glovebox::call::{Kind, OnHangup, Outcome};
use nix::sys::signal::Signal;

use crate::container::{Recipe, eventually};
use crate::processes::below;
use crate::session::{Call, Ended, Sandbox, UID, key, shell};

/// From a call's deadline to the end of its tree; a machine that does much else must not fail this.
const SOON: Duration = Duration::from_secs(6);

/// Runs a script beyond its deadline: the tree must be gone soon after.
fn overrun(recipe: Recipe, script: &str) -> Ended {
    let mut sandbox = Sandbox::idle(recipe);
    let process_1 = sandbox.container.process_1();
    let mut exec = shell(script);
    exec.timeout_ms = 1000;
    let mut call = sandbox.call(&exec);
    call.until("ready\n");
    let start = Instant::now();
    let ended = call.end();
    eventually("all are gone", || below(process_1).is_empty().then_some(()));
    assert!(start.elapsed() < Duration::from_secs(1) + SOON, "{:?}", start.elapsed());
    let result = &ended.result;
    assert_eq!((result.outcome, result.exit_code), (Outcome::DeadlineExceeded, None), "{result:?}");
    println!("deadline 1000 ms: all gone after {} ms", ended.result.duration_ms);
    ended
}

#[test]
fn the_runaway_that_daemonized_and_ignores_everything() {
    let script = r#"trap "" TERM HUP INT
        (setsid sh -c 'trap "" TERM HUP INT; (setsid sh -c "while :; do sleep 0.01; done" &) ; while :; do :; done' &)
        echo ready; while :; do sleep 1; done"#;
    assert_eq!(overrun(Recipe::new(), script).result.signal, Some(9));
}

#[test]
fn stopped_processes() {
    let script =
        "sleep 1000 & kill -STOP $!; setsid sh -c 'kill -STOP $$' & sleep 0.1; echo ready; kill -STOP $$";
    overrun(Recipe::new(), script);
}

#[test]
fn a_fork_bomb() {
    let recipe = Recipe::new().before("prlimit --pid $$ --nproc=100");
    overrun(recipe, "echo ready; bomb() { bomb | bomb & }; bomb 2>/dev/null; while :; do sleep 1; done");
}

#[test]
fn a_command_that_stops_its_call_process() {
    // What it says first, the call process can still carry.
    overrun(Recipe::new(), "echo ready; sleep 0.3; while :; do kill -STOP $PPID; done");
}

#[test]
fn a_session_that_does_not_read() {
    let mut sandbox = Sandbox::idle(Recipe::new());
    let process_1 = sandbox.container.process_1();
    let mut exec = shell("exec yes");
    exec.timeout_ms = 1000;
    exec.max_output_bytes = u64::MAX;
    let call = sandbox.call(&exec);
    let start = Instant::now();
    let command = || below(process_1).iter().any(|(_, name)| name.contains("(yes"));
    eventually("the command is gone", || (!command()).then_some(()));
    assert!(start.elapsed() < Duration::from_secs(1) + SOON, "{:?}", start.elapsed());
    let ended = call.end();
    assert_eq!(ended.result.outcome, Outcome::DeadlineExceeded, "{:?}", ended.result);
}

#[test]
fn a_call_process_that_its_command_kills_leaves_nothing_and_the_workload_lives() {
    let script = "(setsid sleep 1000 &); echo born; while [ ! -e $DIR/end ]; do sleep 0.05; done; ps -A -o comm= | grep -c '^sleep'; exit 5";
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    let mut sandbox = Sandbox::shell(recipe.variable("DIR", &dir), script);
    assert_eq!(sandbox.container.line(), "born");
    let process_1 = sandbox.container.process_1();
    let before = below(process_1).len();
    let hostile = r#"(setsid sh -c 'trap "" TERM HUP; while :; do sleep 0.01; done' &)
        sleep 2000 & setsid sleep 2000 & kill -9 $PPID; sleep 2000"#;
    // Perhaps before it could even say that it has started.
    let mut call = Call::open(sandbox.connect(), &key(1), UID, &shell(hostile));
    while let Some(frame) = call.try_frame() {
        assert_ne!(frame.kind, Kind::Result);
    }
    eventually("what the call left is gone", || {
        let all = below(process_1);
        let left = all.iter().any(|(_, name)| name.contains("(glovebox-call") || name.starts_with('Z'));
        // The workload's own sleeps come and go.
        (!left && all.len() <= before + 1).then_some(())
    });
    // The next call is served, and the workload and what it put into the background are untouched.
    let ended = sandbox.run(&shell(&format!("touch {dir}/end")));
    assert_eq!(ended.result.exit_code, Some(0));
    let ended = sandbox.container.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (5, "1\n"));
    assert_eq!(ended.record().exit_code, Some(5));
}

#[test]
fn a_session_that_hangs_up_ends_its_call() {
    let mut sandbox = Sandbox::idle(Recipe::new());
    let process_1 = sandbox.container.process_1();
    let mut call = sandbox.call(&shell("trap '' HUP TERM; echo ready; (setsid sleep 1000 &); sleep 1000"));
    call.until("ready\n");
    drop(call);
    eventually("all are gone", || below(process_1).is_empty().then_some(()));
    // Also where its words are still unread: by a reset, since an end would wait behind them.
    let mut exec = shell("echo ready; sleep 1000");
    exec.stdin = true;
    let mut call = sandbox.call(&exec);
    call.until("ready\n");
    for _ in 0..12 {
        call.send(Kind::Stdin, &vec![0; 64 * 1024]);
    }
    rustix::net::sockopt::set_socket_linger(&call.stream, Some(Duration::ZERO)).unwrap();
    drop(call);
    eventually("all are gone", || below(process_1).is_empty().then_some(()));
}

#[test]
fn a_call_that_is_to_be_kept_goes_on_without_its_session() {
    let recipe = Recipe::new();
    let path = recipe.scratch().path().join("kept").to_str().unwrap().to_owned();
    let mut sandbox = Sandbox::idle(recipe);
    let process_1 = sandbox.container.process_1();
    let mut exec = shell(&format!("echo ready; head -c 10000000 /dev/zero; sleep 0.3; echo done >{path}"));
    exec.on_hangup = OnHangup::Keep;
    let mut call = sandbox.call(&exec);
    call.until("ready\n");
    drop(call);
    eventually("it ends by itself", || {
        std::fs::read_to_string(&path).ok().filter(|text| text == "done\n").map(drop)
    });
    eventually("all are gone", || below(process_1).is_empty().then_some(()));
    // Its deadline holds all the same.
    exec.command[2] = "echo ready; sleep 1000".into();
    exec.timeout_ms = 1000;
    let mut call = sandbox.call(&exec);
    call.until("ready\n");
    drop(call);
    eventually("all are gone", || below(process_1).is_empty().then_some(()));
}

#[test]
fn calls_hear_that_the_sandbox_ends() {
    let recipe = Recipe::new().option("--grace", "20000");
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    let workload = format!("trap 'exit 3' TERM; touch {dir}/set; while :; do sleep 0.05; done");
    let mut sandbox = Sandbox::shell(recipe, &workload);
    let waits = format!("while [ ! -e {dir}/set ]; do sleep 0.05; done");
    let mut call = sandbox.call(&shell(&format!("trap '' TERM; {waits}; echo ready; sleep 1000")));
    call.until("ready\n");
    sandbox.container.signal(Signal::SIGTERM);
    assert_eq!(call.end().result.outcome, Outcome::ShutDown);
    assert_eq!(sandbox.container.end().code, 3);
    // And when the workload ends by itself.
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    let sandbox = Sandbox::shell(recipe, &format!("while [ ! -e {dir}/end ]; do sleep 0.05; done; exit 9"));
    let mut call = sandbox.call(&shell(&format!("echo ready; touch {dir}/end; sleep 1000")));
    call.until("ready\n");
    assert_eq!(call.end().result.outcome, Outcome::ShutDown);
    assert_eq!(sandbox.container.end().code, 9);
}
