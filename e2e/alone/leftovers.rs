//! What the whole run left behind: nothing.

use std::sync::Arc;

use anyhow::ensure;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    scheduling::v1::PriorityClass,
};
use kube::{Api, ResourceExt, api::ListParams};

use glovebox::api::SandboxClass;

use crate::harness::{Cases, Outcome, Test, test::NAMESPACE_LABEL, wait};

pub(super) fn cases(cases: &mut Cases) {
    cases.add("alone::nothing_is_left_behind", 0, nothing);
}

async fn nothing(test: Arc<Test>) -> Outcome {
    let namespaces: Api<Namespace> = Api::all(test.client.clone());
    wait::poll("the namespaces of earlier tests go", async || {
        let left = namespaces.list(&ListParams::default().labels(NAMESPACE_LABEL)).await?.items;
        Ok(left.iter().all(|namespace| namespace.name_any() == test.namespace).then_some(()))
    })
    .await?;
    // A class that is gone takes its PriorityClass with it.
    let (priorities, classes) =
        (Api::<PriorityClass>::all(test.client.clone()), Api::<SandboxClass>::all(test.client.clone()));
    wait::poll("priority classes go with their classes", async || {
        let known: Vec<String> = classes
            .list(&ListParams::default())
            .await?
            .iter()
            .map(|class| format!("glovebox-{}", class.name_any()))
            .collect();
        let of_tests = priorities
            .list(&ListParams::default())
            .await?
            .into_iter()
            .filter(|class| class.name_any().starts_with("glovebox-e2e-"));
        Ok(of_tests.map(|class| class.name_any()).all(|name| known.contains(&name)).then_some(()))
    })
    .await?;
    let pods = Api::<Pod>::all(test.client.clone())
        .list(&ListParams::default().labels("glovebox.dev/sandbox"))
        .await?
        .items;
    let strays: Vec<String> = pods
        .iter()
        .filter(|pod| pod.namespace().is_some_and(|name| name.starts_with("e2e-")))
        .map(ResourceExt::name_any)
        .collect();
    ensure!(strays.is_empty(), "pods are left: {strays:?}");
    Ok(())
}
