//! The list of tests, and how they are run: a few at a time, as many as the nodes have CPU for; those of `alone::` one by
//! one after the others, since they disturb what the others rely on.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use futures::{FutureExt, future::LocalBoxFuture};
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use tokio::{
    runtime::{Handle, Runtime as Tokio},
    sync::{RwLock, Semaphore},
};

use super::{Outcome, Runtime, Test, classes, cluster::Cluster, story, test::Skipped};

/// How many tests run at a time, unless `--test-threads` says otherwise.
const THREADS: usize = 6;
/// A test that takes longer hangs. The longest waits a minute for something that takes a minute.
const LIMIT: Duration = Duration::from_secs(420);
/// Set in the environment, it has each test's time told.
const TIMES: &str = "GLOVEBOX_E2E_TIMES";

/// Made and carried out on the same thread, so that the future need not be able to move.
type Body = Box<dyn FnOnce(Arc<Test>) -> LocalBoxFuture<'static, Outcome> + Send>;

struct Case {
    name: String,
    cpu: u32,
    body: Body,
}

/// The list of tests.
#[derive(Default)]
pub(crate) struct Cases(Vec<Case>);

impl Cases {
    /// Adds a test. `cpu` is what its pods request at one time, in thousandths of a core.
    pub(crate) fn add<F, Fut>(&mut self, name: &str, cpu: u32, body: F)
    where
        F: FnOnce(Arc<Test>) -> Fut + Send + 'static,
        Fut: Future<Output = Outcome> + 'static,
    {
        self.0.push(Case { name: name.into(), cpu, body: Box::new(move |test| body(test).boxed_local()) });
    }

    /// Adds a test once for each runtime.
    pub(crate) fn each_runtime<F, Fut>(&mut self, name: &str, cpu: u32, body: F)
    where
        F: Fn(Arc<Test>, Runtime) -> Fut + Copy + Send + 'static,
        Fut: Future<Output = Outcome> + 'static,
    {
        for runtime in Runtime::ALL {
            self.add(&format!("{name}_{}", runtime.name()), cpu, move |test| body(test, runtime));
        }
    }
}

/// What decides when a test may start.
struct Gate {
    /// Written by tests that want to be alone.
    company: RwLock<()>,
    /// Thousandths of a core.
    cpu: Semaphore,
    most: u32,
}

/// Runs what the command line asks for.
pub(crate) fn main(cases: Cases) -> ExitCode {
    let (filters, arguments) = arguments();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters
                .iter()
                .any(|filter| if arguments.exact { name == filter } else { name.contains(filter.as_str()) })
    };
    let cases: Vec<Case> = cases.0.into_iter().filter(|case| wanted(&case.name)).collect();
    let run = || -> Result<Conclusion> {
        let tokio = Tokio::new().context("no runtime")?;
        if arguments.list || cases.is_empty() {
            return Ok(libtest_mimic::run(
                &arguments,
                cases.into_iter().map(|case| Trial::test(case.name, || Ok(()))).collect(),
            ));
        }
        let cluster = share(tokio.block_on(Cluster::connect())?)?;
        tokio.block_on(classes::make_shared(&cluster.client))?;
        let most = u32::try_from(cluster.cpu).unwrap_or(u32::MAX);
        let gate = Arc::new(Gate { company: RwLock::default(), cpu: Semaphore::new(most as usize), most });
        let trials = cases
            .into_iter()
            .map(|case| trial(tokio.handle().clone(), cluster, gate.clone(), case))
            .collect();
        let conclusion = libtest_mimic::run(&arguments, trials);
        tokio.block_on(classes::remove_shared(&cluster.client))?;
        if let Some(world) = &cluster.world {
            tokio.block_on(world.close());
        }
        Ok(conclusion)
    };
    match run() {
        Ok(conclusion) => {
            println!("{} passed, {} failed", conclusion.num_passed, conclusion.num_failed);
            if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Several names may be given, any of which fits; libtest-mimic knows one alone.
fn arguments() -> (Vec<String>, Arguments) {
    let mut words: Vec<String> = std::env::args().collect();
    let takes_value = ["--test-threads", "--logfile", "--skip", "--color", "--format", "-Z"];
    let mut filters = Vec::new();
    let mut at = 1;
    while at < words.len() {
        if takes_value.contains(&words[at].as_str()) {
            at += 2;
        } else if words[at].starts_with('-') {
            at += 1;
        } else {
            filters.push(words.remove(at));
        }
    }
    let mut arguments = Arguments::from_iter(words);
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    (filters, arguments)
}

fn share(cluster: Cluster) -> Result<&'static Cluster> {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.set(cluster).map_err(|_| anyhow!("there is one cluster"))?;
    CLUSTER.get().context("it was just set")
}

fn trial(tokio: Handle, cluster: &'static Cluster, gate: Arc<Gate>, case: Case) -> Trial {
    let name = case.name.clone();
    Trial::ignorable_test(case.name.clone(), move || {
        let run = async move {
            let alone = if name.starts_with("alone::") { Some(gate.company.write().await) } else { None };
            let _together = if alone.is_none() { Some(gate.company.read().await) } else { None };
            let _cpu = gate.cpu.acquire_many(case.cpu.min(gate.most)).await?;
            let started = Instant::now();
            let outcome = carry_out(cluster, &name, case.body).await;
            if std::env::var_os(TIMES).is_some() {
                eprintln!("{:6.1} s {name}", started.elapsed().as_secs_f64());
            }
            Ok::<_, anyhow::Error>(outcome)
        };
        tokio.block_on(run)?
    })
}

async fn carry_out(cluster: &'static Cluster, name: &str, body: Body) -> Result<Completion, Failed> {
    let test = Arc::new(Test::start(cluster, name).await.map_err(|error| format!("{error:#}"))?);
    // A panic ends the test and not the tidying; its message was printed as it came.
    let run = AssertUnwindSafe(tokio::time::timeout(LIMIT, body(test.clone()))).catch_unwind();
    let outcome = match run.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(anyhow!("the test did not end within {LIMIT:?}")),
        Err(_) => Err(anyhow!("the test panicked")),
    };
    let completion = match outcome {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast_ref::<Skipped>() {
            Some(skipped) => Ok(Completion::ignored_with(skipped)),
            None => Err(format!("{error:#}\n{}", story::tell(&test).await).into()),
        },
    };
    test.finish().await;
    completion
}
