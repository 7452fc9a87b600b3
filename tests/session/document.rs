//! The OpenAPI document lists what is served, and nothing else is.

use glovebox::session::{ROUTES, openapi};

use crate::{
    client::request,
    world::{TOKEN, World},
};

#[tokio::test]
async fn what_is_listed_is_served_and_what_is_served_is_listed() {
    let world = World::new().await;
    let bearer = format!("Bearer {TOKEN}");
    let served = world.send(&request("GET", "/openapi.json", &[], "")).await;
    assert_eq!((served.status, served.json()), (200, openapi()), "without a token");
    let document = served.json();
    let mut listed = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            listed.push((method.clone(), path.clone()));
            let names: Vec<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| one["name"].as_str().unwrap())
                .collect();
            for parameter in path.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()) {
                assert!(names.contains(&parameter), "{path} has no {parameter}");
            }
            let concrete = path.replace("{namespace}", "a").replace("{name}", "s");
            for method_sent in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
                let reply =
                    world.send(&request(method_sent, &concrete, &[("authorization", &bearer)], "")).await;
                let known = methods.as_object().unwrap().contains_key(&method_sent.to_lowercase());
                assert_eq!(reply.status == 405, !known, "{method_sent} {concrete}");
                assert_ne!(reply.status, 404, "{method_sent} {concrete}");
            }
        }
    }
    let mut routes: Vec<_> =
        ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    routes.sort();
    listed.sort();
    assert_eq!(routes, listed);
}

#[test]
fn the_document_in_the_checkout_is_this_one() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(kept == format!("{:#}\n", openapi()), "write it anew: cargo run -- openapi > docs/openapi.json");
}
