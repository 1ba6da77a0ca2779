//! The services of `muse.v1` over gRPC.

mod admission;
mod call;
mod chat;
mod convert;
mod decoded_size;
mod generate;
mod model;
mod preface_timeout;
mod tokenizer;
mod transport_status;

use std::pin::Pin;

use axum::Router;
use muse_proto::FILE_DESCRIPTOR_SET;
use muse_proto::v1::chat_service_server::ChatServiceServer;
use muse_proto::v1::generate_service_server::GenerateServiceServer;
use muse_proto::v1::model_service_server::ModelServiceServer;
use muse_proto::v1::tokenizer_service_server::TokenizerServiceServer;
use tokio_stream::Stream;
use tonic::Status;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tonic_reflection::server::Builder as Reflection;

pub use chat::ChatApi;
pub use generate::GenerateApi;
pub use model::ModelApi;
pub(crate) use preface_timeout::PrefaceTimeout;
pub use tokenizer::TokenizerApi;

use crate::service::{ByteBudget, Service};
use crate::tracking;

/// The responses of a streaming call.
pub type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Services whose health is reported; the empty name is the whole server.
const HEALTH_NAMES: [&str; 5] = [
    "",
    <ChatServiceServer<ChatApi> as NamedService>::NAME,
    <GenerateServiceServer<GenerateApi> as NamedService>::NAME,
    <ModelServiceServer<ModelApi> as NamedService>::NAME,
    <TokenizerServiceServer<TokenizerApi> as NamedService>::NAME,
];

/// The routes of health, which is NOT_SERVING until the reporter sets another, with those that
/// `complete` adds.
pub(crate) async fn loading_routes(
    complete: impl FnOnce(Router) -> Router,
) -> (Routes, HealthReporter) {
    let (reporter, health) = tonic_health::server::health_reporter();
    set_health(&reporter, ServingStatus::NotServing).await;
    let routes = Routes::from(complete(Routes::new(health).into_axum_router()));
    (transport_status::explain_transport_statuses(routes), reporter)
}

/// The routes of the services of a model and of reflection.
pub(crate) fn routes(service: &Service, budget: ByteBudget, max_message_bytes: usize) -> Routes {
    let reflection = || {
        Reflection::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let chat = ChatServiceServer::new(ChatApi::with_service(service.clone()));
    let generate = GenerateServiceServer::new(GenerateApi::with_service(service.clone()));
    let models = ModelServiceServer::new(ModelApi::with_service(service.clone()));
    let tokenizer = TokenizerServiceServer::new(TokenizerApi::with_service(service.clone()));
    let routes = Routes::new(chat.max_decoding_message_size(max_message_bytes))
        .add_service(generate.max_decoding_message_size(max_message_bytes))
        .add_service(models)
        .add_service(tokenizer.max_decoding_message_size(max_message_bytes))
        .add_service(reflection().build_v1().expect("the descriptors were compiled"))
        .add_service(reflection().build_v1alpha().expect("the descriptors were compiled"));
    let routes = admission::admit_messages(routes, max_message_bytes);
    let routes = transport_status::explain_transport_statuses(routes);
    tracking::track_routes(routes, budget)
}

/// Sets the health of the server and of each service.
pub(crate) async fn set_health(reporter: &HealthReporter, status: ServingStatus) {
    for name in HEALTH_NAMES {
        reporter.set_service_status(name, status).await;
    }
}
