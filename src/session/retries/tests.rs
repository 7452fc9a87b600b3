//! Who gets whose result, for how long, and how much is kept.

use super::*;

const KEPT: Duration = Duration::from_secs(600);

fn uid(text: &str) -> Arc<str> {
    text.into()
}

fn key(number: u32) -> Key {
    super::super::cache::key(&[&number.to_be_bytes()])
}

fn first(begun: Begun) -> First {
    match begun {
        Begun::First(first) => first,
        _ => panic!("somebody was first before"),
    }
}

fn again(begun: Begun) -> Waiting {
    match begun {
        Begun::Again(waiting) => waiting,
        _ => panic!("nobody was first"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_gets_what_the_first_gets() {
    let (retries, uid) = (Retries::new(KEPT), uid("u"));
    let begin = |request| retries.begin(key(1), key(request), Some(&uid));
    let running = first(begin(7));
    let waiting = again(begin(7));
    assert!(matches!(begin(8), Begun::Other));
    running.end(Ok("{}".into()), true);
    assert_eq!(waiting.ended().await, Ok("{}".into()));
    // After its end, and after the sandbox's.
    assert_eq!(again(begin(7)).ended().await, Ok("{}".into()));
    assert_eq!(again(retries.begin(key(1), key(7), None)).ended().await, Ok("{}".into()));
    assert!(matches!(retries.begin(key(2), key(7), None), Begun::None));
    tokio::time::advance(KEPT).await;
    first(begin(8));
}

#[tokio::test(start_paused = true)]
async fn what_has_not_run_may_run_and_what_may_have_run_may_not() {
    let (retries, uid) = (Retries::new(KEPT), uid("u"));
    let begin = || retries.begin(key(1), key(7), Some(&uid));
    let running = first(begin());
    let waiting = again(begin());
    let busy = Problem::new(Reason::SandboxBusy, "");
    running.end(Err(busy.clone()), false);
    assert_eq!(waiting.ended().await, Err(busy));
    let lost = Problem::new(Reason::CallLost, "");
    first(begin()).end(Err(lost.clone()), true);
    assert_eq!(again(begin()).ended().await, Err(lost));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_keeps_nobody_waiting_and_does_not_run_twice() {
    let (retries, uid) = (Retries::new(KEPT), uid("u"));
    let begin = || retries.begin(key(1), key(7), Some(&uid));
    let running = first(begin());
    let waiting = again(begin());
    drop(running);
    assert_eq!(waiting.ended().await.unwrap_err().reason, Reason::Internal);
    assert_eq!(again(begin()).ended().await.unwrap_err().reason, Reason::Internal);
}

#[tokio::test(start_paused = true)]
async fn another_sandbox_of_the_same_name_has_seen_nothing() {
    let retries = Retries::new(KEPT);
    let old = first(retries.begin(key(1), key(7), Some(&uid("old"))));
    let new = first(retries.begin(key(1), key(7), Some(&uid("new"))));
    old.end(Ok("old".into()), true);
    new.end(Ok("new".into()), true);
    assert_eq!(again(retries.begin(key(1), key(7), Some(&uid("new")))).ended().await, Ok("new".into()));
}

#[tokio::test(start_paused = true)]
async fn there_is_never_too_much() {
    let (retries, uid) = (Retries::new(KEPT), uid("u"));
    let big = Bytes::from(vec![b'x'; MOST_BYTES / 4]);
    for number in 0..5 {
        first(retries.begin(key(number), key(7), Some(&uid))).end(Ok(big.clone()), true);
    }
    let begin = |number| retries.begin(key(number), key(7), Some(&uid));
    assert_eq!(
        again(begin(0)).ended().await.unwrap_err().reason,
        Reason::ResultNotKept,
        "remembered without its output"
    );
    assert_eq!(again(begin(1)).ended().await, Ok(big));
    for number in 5..20_000 {
        first(begin(number)).end(Ok("{}".into()), true);
    }
    let inner = retries.inner.lock().unwrap();
    assert_eq!(
        (inner.entries.len(), inner.ended.len(), inner.bytes),
        (MOST_REMEMBERED, MOST_REMEMBERED, 2 * MOST_REMEMBERED)
    );
    assert!(inner.full.len() <= MOST_REMEMBERED);
}
