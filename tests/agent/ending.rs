//! How a container ends: the status, the record, and that nothing outlives it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::container::Recipe;

#[test]
fn the_exit_code_passes_through_with_a_record() {
    for code in [0, 1, 7, 255] {
        let ended = Recipe::new().shell(&format!("echo out; echo err >&2; exit {code}")).end();
        assert_eq!(ended.code, i32::from(code));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
        let record = ended.record();
        assert_eq!((record.exit_code, record.signal, record.spawn_error), (Some(code), None, None));
    }
}

#[test]
fn a_signal_is_128_more_and_recorded_even_a_real_time_one() {
    for signal in [6, 9, 11, 15, 40] {
        let ended = Recipe::new().shell(&format!("kill -{signal} $$")).end();
        assert_eq!(ended.code, 128 + i32::from(signal));
        assert_eq!((ended.record().exit_code, ended.record().signal), (None, Some(signal)));
    }
}

#[test]
fn the_record_replaces_what_the_workload_wrote_there() {
    let recipe = Recipe::new();
    let log = recipe.scratch().path().join("log").to_str().unwrap().to_owned();
    let forged = r#"{"v":1,"exitCode":0,"signal":null,"spawnError":null,"oom":false}"#;
    // One write at once, and one by a process that would come later if it were left alive.
    let script =
        format!("echo '{forged}' >{log}; (trap '' TERM HUP; sleep 0.5; echo '{forged}' >{log}) & exit 4");
    let ended = recipe.shell(&script).end();
    assert_eq!((ended.code, ended.record().exit_code), (4, Some(4)));
}

#[test]
fn the_termination_log_is_kept_short_whoever_writes_it() {
    let recipe = Recipe::new();
    let log = recipe.scratch().path().join("log").to_str().unwrap().to_owned();
    // 64 MiB, and as much again by a process that keeps the file open.
    let script = r#"
        short() {
            while [ "$(stat -c %b "$LOG")" -gt 16 ]; do
                sleep 0.05; waited=x$waited
                [ ${#waited} -lt 1000 ] || { echo "still $(stat -c %s "$LOG") bytes"; exit 1; }
            done
        }
        dd if=/dev/zero of="$LOG" bs=1M count=64 2>/dev/null; short
        exec 9>>"$LOG"; dd if=/dev/zero bs=1M count=64 >&9 2>/dev/null; short
        exit 3"#;
    let ended = recipe.variable("LOG", &log).shell(script).end();
    assert_eq!((ended.stdout.as_str(), ended.code, ended.record().exit_code), ("", 3, Some(3)));
}

#[test]
fn orphans_are_reaped_while_the_workload_runs() {
    // The inner shell ends at once; what it started falls to process 1, ends, and must leave no zombie.
    let script = r#"
        sh -c 'sleep 0.3 & echo $!' >"$DIR/pid"; orphan=$(cat "$DIR/pid")
        grep PPid "/proc/$orphan/status"
        while [ -e "/proc/$orphan" ]; do sleep 0.05; waited=x$waited
            [ ${#waited} -lt 1000 ] || { echo "zombie: $(grep State /proc/$orphan/status)"; exit 1; }
        done
        echo reaped"#;
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    let ended = recipe.variable("DIR", &dir).shell(script).end();
    assert_eq!(ended.stdout, "PPid:\t1\nreaped\n");
}

#[test]
fn orphans_that_end_together_leave_no_zombie() {
    // Their signals melt into few: who reaps one child a signal is left with the others.
    let script = r#"
        i=0; while [ $i -lt 200 ]; do sh -c 'sleep 1000 >/dev/null & echo $!'; i=$((i+1)); done >"$DIR/pids"
        kill -9 $(cat "$DIR/pids")
        while zombies=$(grep -l '^State:.*Z' /proc/[0-9]*/status 2>/dev/null | wc -l); [ "$zombies" -gt 0 ]; do
            sleep 0.05; waited=x$waited; [ ${#waited} -lt 1000 ] || break
        done
        echo "$zombies zombies""#;
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    let ended = recipe.variable("DIR", &dir).shell(script).end();
    assert_eq!(ended.stdout, "0 zombies\n");
}

#[test]
fn a_thousand_orphans_at_once_lose_no_status() {
    let script = "i=0; while [ $i -lt 1000 ]; do sh -c 'true &'; i=$((i+1)); done; exit 21";
    assert_eq!(Recipe::new().shell(script).end().code, 21);
}

#[test]
fn what_daemonized_and_ignores_everything_ends_with_the_workload() {
    // Each holds the output open: end() returns only when all are gone.
    let script = r#"
        setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 60; done' &
        sh -c 'setsid sleep 1000 &'
        sleep 1000 & kill -STOP $!
        exit 5"#;
    let start = Instant::now();
    assert_eq!(Recipe::new().shell(script).end().code, 5);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_fork_bomb_ends_with_the_workload() {
    let script = "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 0.5; exit 6";
    let start = Instant::now();
    let ended = Recipe::new().before("prlimit --pid $$ --nproc=120").shell(script).end();
    assert_eq!(ended.record().process_exit_code(), u8::try_from(ended.code).unwrap());
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn a_workload_that_ends_on_term_ends_the_container_before_the_grace_is_over() {
    let mut container = Recipe::new()
        .option("--grace", "20000")
        .shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done");
    assert_eq!(container.line(), "ready");
    let start = Instant::now();
    container.signal(Signal::SIGTERM);
    assert_eq!(container.end().code, 3);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_workload_that_ignores_term_is_killed_when_the_grace_is_over() {
    let script =
        "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); echo ready; while :; do sleep 1; done";
    let mut container = Recipe::new().option("--grace", "300").shell(script);
    assert_eq!(container.line(), "ready");
    let start = Instant::now();
    container.signal(Signal::SIGTERM);
    let ended = container.end();
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(ended.code, 137);
    assert_eq!((ended.record().exit_code, ended.record().signal), (None, Some(9)));
}

#[test]
fn more_terms_do_not_prolong_the_grace() {
    let mut container =
        Recipe::new().option("--grace", "400").shell("trap '' TERM; echo ready; while :; do sleep 1; done");
    assert_eq!(container.line(), "ready");
    let process_1 = container.process_1();
    let start = Instant::now();
    // For as long as it lives, and at most ten times the grace.
    while start.elapsed() < Duration::from_secs(4) && kill(process_1, Signal::SIGTERM).is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(container.end().code, 137);
}

#[test]
fn a_stopped_workload_gets_its_chance_and_a_stubborn_one_its_end() {
    for (trap, code) in [("exit 3", 3), ("", 137)] {
        let script = format!("trap '{trap}' TERM; echo ready; kill -STOP $$; while :; do sleep 0.05; done");
        let mut container = Recipe::new().option("--grace", "500").shell(&script);
        assert_eq!(container.line(), "ready");
        let process_1 = container.process_1();
        crate::container::eventually("the workload is stopped", || {
            let children =
                std::fs::read_to_string(format!("/proc/{process_1}/task/{process_1}/children")).ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", children.trim())).ok()?;
            stat.contains(") T ").then_some(())
        });
        container.signal(Signal::SIGTERM);
        assert_eq!(container.end().code, code, "{trap:?}");
    }
}

#[test]
fn a_termination_log_that_cannot_be_written_changes_no_status() {
    let ended = Recipe::new().option("--termination-log", "/proc/no").shell("exit 8").end();
    assert_eq!(ended.code, 8);
    assert!(ended.stderr.contains("cannot report to /proc/no"), "{}", ended.stderr);
}
