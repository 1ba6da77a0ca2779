//! `GenerateService` over gRPC.

use std::sync::Arc;

use muse_core::contract::Token;
use muse_proto::v1::generate_response::Event;
use muse_proto::v1::generate_service_server::GenerateService;
use muse_proto::v1::{GenerateRequest, GenerateResponse, TokensDelta};
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status};

use super::{Responses, convert, deadline};
use crate::app::App;
use crate::service::{Complete, Gate, GenerateEvent, Service};

/// Completes prompts of token ids.
pub struct Generate {
    service: Service,
}

impl Generate {
    /// Completes with a model of this process, for as long as it lives.
    pub fn new(app: Arc<App>) -> Self {
        Self::over(Service::new(app, Gate::default()))
    }

    pub(super) fn over(service: Service) -> Self {
        Self { service }
    }
}

#[tonic::async_trait]
impl GenerateService for Generate {
    type GenerateStream = Responses<GenerateResponse>;

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let deadline = deadline(request.metadata());
        let request = request.into_inner();
        let settings = convert::settings(request.sampling, request.limits, deadline);
        let asked = settings.logprobs.is_some();
        let tokens = |ids: Vec<u32>| ids.into_iter().map(Token).collect();
        let complete = Complete {
            model: Some(request.model),
            prompt: tokens(request.prompt_ids),
            settings,
            stop: tokens(request.stop_ids),
            ignore_model_stop: request.ignore_model_stop,
        };
        let tokenizer = self.service.app().tokenizer.clone();
        let answer = self.service.generate(complete).map_err(convert::status)?;
        let responses = answer.map(move |event| {
            let (_, event) = event.map_err(convert::status)?;
            let event = match event {
                GenerateEvent::Progress { done, total } => {
                    Event::Progress(convert::progress(done, total))
                }
                GenerateEvent::Tokens(tokens) => {
                    let token = |picked| convert::token(picked, tokenizer.as_deref(), asked);
                    Event::Tokens(TokensDelta { tokens: tokens.into_iter().map(token).collect() })
                }
                GenerateEvent::Spent(spent) => Event::Usage(convert::usage(spent)),
                GenerateEvent::End(end) => Event::Finish(convert::finish(end)),
            };
            Ok(GenerateResponse { event: Some(event) })
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
