//! What is worth knowing when a test failed: conditions, events, pods, the controller's log.

use std::fmt::Write;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};

use glovebox::api::AgentSandbox;

use super::{Test, cluster::CONTROLLER};

/// The longest part of the story that is told, in bytes.
const MOST: usize = 24_000;
/// How many of the controller's last lines are looked through.
const LINES: i64 = 400;

/// Tells it as text.
pub(crate) async fn tell(test: &Test) -> String {
    let mut story = String::new();
    for namespace in test.all_namespaces() {
        // A part that can't be had is left out: the failure itself stands above.
        let _ = sandboxes(test, &namespace, &mut story).await;
        let _ = events(test, &namespace, &mut story).await;
        let _ = pods(test, &namespace, &mut story).await;
    }
    let _ = controller(test, &mut story).await;
    if story.len() > MOST {
        let cut = (0..=MOST).rev().find(|at| story.is_char_boundary(*at)).unwrap_or(0);
        story.truncate(cut);
        story.push_str("\n... the rest is left out");
    }
    story
}

async fn sandboxes(test: &Test, namespace: &str, story: &mut String) -> anyhow::Result<()> {
    let api: Api<AgentSandbox> = Api::namespaced(test.client.clone(), namespace);
    for sandbox in api.list(&ListParams::default().limit(5)).await? {
        writeln!(story, "-- sandbox {namespace}/{}", sandbox.name_any())?;
        let Some(status) = &sandbox.status else { continue };
        writeln!(
            story,
            "   phase {:?} reason {:?} exit {:?}",
            status.phase, status.reason, status.exit_code
        )?;
        for condition in &status.conditions {
            writeln!(
                story,
                "   {}={} {}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            )?;
        }
    }
    Ok(())
}

async fn events(test: &Test, namespace: &str, story: &mut String) -> anyhow::Result<()> {
    let api: Api<Event> = Api::namespaced(test.client.clone(), namespace);
    for event in api.list(&ListParams::default().limit(40)).await? {
        let about = event.involved_object;
        let (kind, name) = (about.kind.unwrap_or_default(), about.name.unwrap_or_default());
        let (reason, message) = (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        writeln!(story, "   event {kind}/{name} {reason}: {message}")?;
    }
    Ok(())
}

async fn pods(test: &Test, namespace: &str, story: &mut String) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::namespaced(test.client.clone(), namespace);
    for pod in api.list(&ListParams::default().limit(5)).await? {
        let name = pod.name_any();
        let status = pod.status.unwrap_or_default();
        let whole = [status.phase, status.reason, status.message].into_iter().flatten().collect::<Vec<_>>();
        writeln!(story, "-- pod {namespace}/{name}: {}", whole.join("; "))?;
        for condition in status.conditions.iter().flatten().filter(|condition| condition.status != "True") {
            let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
            writeln!(story, "   {} {}: {reason:?} {message:?}", condition.type_, condition.status)?;
        }
        for container in
            [status.init_container_statuses, status.container_statuses].into_iter().flatten().flatten()
        {
            writeln!(story, "   container {}: {}", container.name, serde_json::to_string(&container.state)?)?;
        }
        let params =
            LogParams { container: Some("workload".into()), tail_lines: Some(40), ..LogParams::default() };
        if let Ok(log) = api.logs(&name, &params).await {
            writeln!(story, "-- log\n{log}")?;
        }
    }
    Ok(())
}

async fn controller(test: &Test, story: &mut String) -> anyhow::Result<()> {
    let Some(controller) = &test.cluster.controller else { return Ok(()) };
    let api: Api<Pod> = Api::namespaced(test.client.clone(), &controller.namespace);
    for pod in api.list(&ListParams::default().labels(CONTROLLER)).await? {
        let params = LogParams { tail_lines: Some(LINES), ..LogParams::default() };
        let log = api.logs(&pod.name_any(), &params).await?;
        let concerns = |line: &&str| line.contains(&test.namespace) || !line.contains("\"namespace\"");
        let lines: Vec<&str> = log.lines().filter(concerns).collect();
        writeln!(story, "-- controller {}", pod.name_any())?;
        for line in &lines[lines.len().saturating_sub(25)..] {
            // Which object a line is about stands in it more than once.
            writeln!(story, "   {}", line.split(",\"target\":").next().unwrap_or_default())?;
        }
    }
    Ok(())
}
