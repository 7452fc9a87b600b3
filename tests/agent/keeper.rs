//! A workload where calls come in: it has a keeper above it, and is otherwise as it would be without.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::container::{Recipe, eventually};
use crate::processes::below;
use crate::session::{Sandbox, shell};

#[test]
fn its_end_is_told_as_it_was() {
    for (script, code, record) in [
        ("exit 0", 0, (Some(0), None)),
        ("exit 255", 255, (Some(255), None)),
        ("kill -9 $$", 137, (None, Some(9))),
        ("kill -40 $$", 168, (None, Some(40))),
    ] {
        let ended = Sandbox::shell(Recipe::new(), script).container.end();
        assert_eq!(ended.code, code, "{script}: {}", ended.stderr);
        assert_eq!((ended.record().exit_code, ended.record().signal), record, "{script}");
    }
}

#[test]
fn a_command_that_is_not_there_is_recorded_with_its_reason() {
    let (recipe, _) = crate::session::listening(Recipe::new());
    let ended = recipe.run(&["no-such-command"]).end();
    assert_eq!(ended.code, 127);
    let error = ended.record().spawn_error.unwrap();
    assert!(error.contains("no such command in PATH") && ended.stderr.contains(&error), "{error}");
    let (recipe, _) = crate::session::listening(Recipe::new());
    let ended = recipe.option("--cwd", "/proc/no").run(&["pwd"]).end();
    assert_eq!((ended.code, ended.record().exit_code), (126, Some(126)));
}

#[test]
fn it_gets_what_it_would_get_without() {
    let script = "ls /proc/self/fd; grep -E '^(SigBlk|SigIgn)' /proc/self/status; env | grep -c GLOVEBOX; cat /proc/$PPID/environ 2>&1; ps -o sid= $$ | grep -c $$";
    let recipe = Recipe::new().variable("GLOVEBOX_X", "1").before("exec 7</dev/null");
    let ended = Sandbox::shell(recipe, script).container.end();
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines[..4], ["0", "1", "2", "3"], "{}", ended.stdout);
    for line in &lines[4..6] {
        let set = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(set & !(0b11 << 31), 0, "{line}");
    }
    assert_eq!(lines[6], "0");
    assert!(lines[7].contains("Permission denied"), "the keeper can be looked into: {}", lines[7]);
    assert_eq!(lines[8], "1");
}

#[test]
fn signals_reach_it_and_its_orphans_are_reaped() {
    let script = r#"
        sh -c 'sleep 0.2 & echo $!' >"$DIR/pid"; orphan=$(cat "$DIR/pid")
        while [ -e "/proc/$orphan" ]; do sleep 0.05; waited=x$waited; [ ${#waited} -lt 1000 ] || exit 1; done
        trap 'echo hup' HUP; trap 'echo term; exit 3' TERM; echo ready
        while :; do sleep 0.05; done"#;
    let recipe = Recipe::new().option("--grace", "20000");
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    let mut sandbox = Sandbox::shell(recipe.variable("DIR", &dir), script);
    let container = &mut sandbox.container;
    assert_eq!(container.line(), "ready");
    container.signal(Signal::SIGHUP);
    assert_eq!(container.line(), "hup");
    container.signal(Signal::SIGTERM);
    let ended = sandbox.container.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (3, "term\n"));
}

#[test]
fn whoever_kills_the_keeper_ends_the_sandbox() {
    let mut sandbox = Sandbox::shell(Recipe::new(), "echo ready; exec sleep 1000");
    assert_eq!(sandbox.container.line(), "ready");
    assert_eq!(sandbox.run(&shell("exit 0")).result.exit_code, Some(0));
    let process_1 = sandbox.container.process_1();
    let keeper = eventually("the keeper is there", || {
        below(process_1).into_iter().find(|(_, name)| name.contains("(glovebox-keeper")).map(|(pid, _)| pid)
    });
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    let ended = sandbox.container.end();
    assert_eq!((ended.code, ended.record().signal), (137, Some(9)));
}
