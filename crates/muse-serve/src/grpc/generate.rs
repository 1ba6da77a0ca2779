//! `GenerateService` over gRPC.

use std::sync::Arc;

use muse_core::contract::Token;
use muse_proto::v1::generate_response::Event;
use muse_proto::v1::generate_service_server::GenerateService;
use muse_proto::v1::{GenerateRequest, GenerateResponse, TokensDelta};
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status};

use super::call::Call;
use super::{Responses, convert};
use crate::app::App;
use crate::service::{DrainGuard, GenerateEvent, GenerateJob, Service};

/// Implements `GenerateService`.
pub struct GenerateApi {
    service: Service,
}

impl GenerateApi {
    /// Serves a model within this process, without a network.
    pub fn new(app: Arc<App>) -> Self {
        Self::with_service(Service::new(app, DrainGuard::default()))
    }

    pub(super) fn with_service(service: Service) -> Self {
        Self { service }
    }
}

#[tonic::async_trait]
impl GenerateService for GenerateApi {
    type GenerateStream = Responses<GenerateResponse>;

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let call = Call::of(&request);
        let request = request.into_inner();
        let settings = convert::settings(request.sampling, request.limits, call.deadline);
        let logprobs = settings.logprobs.is_some();
        let tokens = |ids: Vec<u32>| ids.into_iter().map(Token).collect();
        let job = GenerateJob {
            model: Some(request.model),
            prompt: tokens(request.prompt_ids),
            settings,
            stop_ids: tokens(request.stop_ids),
            ignore_model_stop: request.ignore_model_stop,
            scope: call.scope.clone(),
        };
        let tokenizer = self.service.app().tokenizer.clone();
        let events = self.service.generate(job).map_err(|error| call.status(error))?;
        let id = call.id();
        let responses = events.map(move |event| {
            let (_, event) = event.map_err(|error| call.status(error))?;
            let event = match event {
                GenerateEvent::Progress { done, total } => {
                    Event::Progress(convert::progress(done, total))
                }
                GenerateEvent::Tokens(tokens) => {
                    let token = |sampled| convert::token(sampled, tokenizer.as_deref(), logprobs);
                    Event::Tokens(TokensDelta { tokens: tokens.into_iter().map(token).collect() })
                }
                GenerateEvent::Usage(usage) => Event::Usage(convert::usage(usage)),
                GenerateEvent::Finish(finish) => Event::Finish(convert::finish(finish)),
            };
            Ok(GenerateResponse { event: Some(event), id: id.clone() })
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
