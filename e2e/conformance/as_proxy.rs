//! Glovebox's gateway judged as any other proxy is: the same attempts with the same judge, from a sandbox. So the figures stand beside
//! each other, and a judge that fails everybody would be seen here.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{
    Ground, PATIENCE,
    oracle::{Names, Oracle},
    report,
    table::Table,
    target,
};
use crate::harness::{Cases, Outcome, Runtime, Sandbox, Test};

pub(super) fn cases(cases: &mut Cases) {
    cases.add("conformance::judged_as_any_other_proxy_is", 350, judged);
}

async fn judged(test: Arc<Test>) -> Outcome {
    let ground = Ground::open(&test).await?;
    let names = Names::open(&test.local()?.run)?;
    names.tell(None).await?;
    let mut spec = ground.rules();
    // A proxy is expected to take this host by CONNECT too.
    let rules = spec["egress"]["allow"].as_array_mut().context("no rules")?;
    rules.push(json!({"name": "web-by-tls", "hosts": ["web.example"]}));
    let sandbox = ground.sandbox(Runtime::Runc, "judged", &spec).await?;
    let table = attempts(&ground, &sandbox).await?;
    report::rows("the gateway, judged as any other proxy", &table);
    ensure!(report::good(&table), "rows failed: {}", report::json("the gateway", &table));
    drop(names);
    ground.nothing_leaked(&sandbox).await
}

async fn attempts(ground: &Ground<'_>, sandbox: &Sandbox) -> Result<Table> {
    let gate = &ground.gateway.address;
    let told = json!({"proxy": [gate, 3128], "tls": [gate, 443], "connect": true});
    let arguments = json!({"suffix": ground.suffix, "target": told, "cluster": target::CLUSTER}).to_string();
    let mut table = Table::default();
    for (name, attack) in target::SCRIPTS {
        let oracle = Oracle::open(ground.world)?;
        let command = attack.command(&[&arguments]);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = sandbox.exec_within(&words, PATIENCE).await?;
        ensure!(output.stdout.contains("\nattempts "), "{name} broke off: {}", output.stderr);
        oracle.judge(name, &output.stdout, &mut table).await?;
    }
    Ok(table)
}
