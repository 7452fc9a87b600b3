//! The project's own tasks, run as `cargo xtask TASK`. This file only names them: one line a module, no logic.

mod bench;
mod cargo;
mod cluster;
mod demo;
mod deps;
mod fuzz;
mod image;
mod install;
mod paths;
mod python;
mod testing;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own tasks: clusters, images, demo, tests, benchmarks, fuzzing.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// A real Kubernetes on this machine: built from source, in namespaces of its own.
    Cluster(cluster::cli::ClusterArgs),
    /// Images as OCI archives in the user's cache.
    Image(image::ImageArgs),
    Demo(demo::DemoArgs),
    Test(testing::TestArgs),
    Bench(bench::BenchArgs),
    Fuzz(fuzz::FuzzArgs),
}

fn main() -> ExitCode {
    let outcome = match Xtask::parse().task {
        Task::Cluster(args) => cluster::cli::run(args),
        Task::Image(args) => image::run(&args),
        Task::Demo(args) => demo::run(&args).map(|()| ExitCode::SUCCESS),
        Task::Test(args) => testing::run(&args).map(|()| ExitCode::SUCCESS),
        Task::Bench(args) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Task::Fuzz(args) => fuzz::run(&args).map(|()| ExitCode::SUCCESS),
    };
    ui::exit(outcome)
}
