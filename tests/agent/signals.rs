//! What signals do to process 1: those from outside reach the workload's group, those from inside reach nobody.

use nix::sys::signal::Signal;

use crate::container::{Recipe, eventually};

#[test]
fn each_forwarded_signal_reaches_the_workload_and_its_group() {
    for (signal, name) in [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
        (Signal::SIGTERM, "TERM"),
    ] {
        // A shell ignores INT and QUIT in what it puts into the background: there the child stays in front.
        let script = format!(
            "trap 'trap \"\" {name}; wait; echo main; exit 0' {name}
             sh -c 'trap \"echo child; exit\" {name}; echo ready; while :; do sleep 0.02; done' &
             wait; wait; exit 1"
        );
        let script = if matches!(name, "INT" | "QUIT") { script.replace("&\n", "\n") } else { script };
        let mut container = Recipe::new().option("--grace", "10000").shell(&script);
        assert_eq!(container.line(), "ready");
        container.signal(signal);
        let ended = container.end();
        assert!(ended.stdout.contains("child\n"), "{name}: {:?}", ended.stdout);
        assert!(ended.stdout.contains("main\n"), "{name}: {:?}", ended.stdout);
    }
}

#[test]
fn no_signal_from_inside_ends_or_stops_process_1() {
    // Every signal there is, KILL and STOP included; then a look whether it still reaps.
    let script = r"
        i=1; while [ $i -le 64 ]; do kill -$i 1 2>/dev/null; i=$((i+1)); done
        trap 'echo passed on' TERM INT HUP QUIT USR1 USR2
        sh -c 'sleep 0.05 &'; sleep 0.4
        grep -l '^State:.*Z' /proc/[0-9]*/status 2>/dev/null
        grep State: /proc/1/status
        exit 12";
    let ended = Recipe::new().shell(script).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (12, "State:\tS (sleeping)\n"), "{}", ended.stderr);
}

#[test]
fn a_flood_of_signals_from_inside_does_not_keep_term_out_for_longer_than_the_grace() {
    let script = "trap '' TERM USR1; echo ready; while :; do kill -USR1 1; kill -CHLD 1; done";
    let mut container = Recipe::new().option("--grace", "300").shell(script);
    assert_eq!(container.line(), "ready");
    container.signal(Signal::SIGTERM);
    assert_eq!(container.end().code, 137);
}

#[test]
fn process_1_sleeps_when_nothing_happens() {
    let mut container = Recipe::new().shell("echo ready; exec sleep 1000");
    assert_eq!(container.line(), "ready");
    let process_1 = container.process_1();
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{process_1}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let switches = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{process_1}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse().unwrap()
    };
    let asleep = || std::fs::read_to_string(format!("/proc/{process_1}/stat")).unwrap().contains(") S ");
    eventually("process 1 sleeps", || asleep().then_some(()));
    let before = (ticks(), switches());
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!((ticks(), switches()), before, "it woke up for nothing");
    container.signal(Signal::SIGTERM);
    assert_eq!(container.end().code, 143);
}
