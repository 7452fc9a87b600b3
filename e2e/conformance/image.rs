//! The case that the whole gateway is for: a picture in Markdown, whose address carries a secret away.

use std::sync::Arc;

use serde_json::json;

use super::{Ground, script};
use crate::{
    attacks::Attack,
    harness::{Cases, Outcome, Runtime, Test},
};

const IMAGE: Attack = script!("image.py", 22);

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("conformance::a_picture_in_markdown_carries_nothing_away", 350, picture);
}

async fn picture(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let ground = Ground::open(&test).await?;
    let sandbox = ground.sandbox(runtime, "agent", &json!({})).await?;
    ground.attack(&sandbox, IMAGE, &json!({})).await?;
    ground.nothing_leaked(&sandbox).await
}
