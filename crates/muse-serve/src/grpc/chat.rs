//! `ChatService` over gRPC.

use std::sync::Arc;

use muse_core::contract::Token;
use muse_proto::v1::chat_response::Event;
use muse_proto::v1::chat_service_server::ChatService;
use muse_proto::v1::{ChatRequest, ChatResponse, TextDelta};
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status};

use super::call::Call;
use super::{Responses, convert};
use crate::app::App;
use crate::service::{ChatConstraints, ChatEvent, ChatJob, DrainGuard, Service};

/// Implements `ChatService`.
pub struct ChatApi {
    service: Service,
}

impl ChatApi {
    /// Serves a model within this process, without a network.
    pub fn new(app: Arc<App>) -> Self {
        Self::with_service(Service::new(app, DrainGuard::default()))
    }

    pub(super) fn with_service(service: Service) -> Self {
        Self { service }
    }
}

#[tonic::async_trait]
impl ChatService for ChatApi {
    type ChatStream = Responses<ChatResponse>;

    async fn chat(
        &self,
        request: Request<ChatRequest>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        let call = Call::of(&request);
        let request = request.into_inner();
        let settings = convert::settings(request.sampling, request.limits, call.deadline);
        let conversation = request.conversation.unwrap_or_default();
        let (conversation, tool_choice) =
            convert::conversation(conversation).map_err(|error| call.status(error))?;
        let job = ChatJob {
            model: Some(request.model),
            conversation,
            settings,
            stop: request.stop,
            stop_ids: request.stop_ids.into_iter().map(Token).collect(),
            ignore_model_stop: request.ignore_model_stop,
            choices: request.choices,
            growing_tool_calls: request.growing_tool_calls,
            constraints: ChatConstraints {
                tool_choice,
                answer: convert::answer_rule(request.constraint)
                    .map_err(|error| call.status(error))?,
                thinking_budget: request.thinking_token_budget,
            },
            scope: call.scope.clone(),
        };
        let tokenizer = self.service.app().tokenizer.clone();
        let events = self.service.chat(job).await.map_err(|error| call.status(error))?;
        let id = call.id();
        let responses = events.map(move |event| {
            let (choice, event) = event.map_err(|error| call.status(error))?;
            let event = match event {
                ChatEvent::Progress { done, total } => {
                    Event::Progress(convert::progress(done, total))
                }
                ChatEvent::Reasoning(text) => {
                    Event::Reasoning(TextDelta { text, tokens: Vec::new() })
                }
                ChatEvent::Content { text, tokens } => {
                    let token = |token| convert::answer_token(token, tokenizer.as_deref());
                    Event::Text(TextDelta { text, tokens: tokens.into_iter().map(token).collect() })
                }
                ChatEvent::ToolCallDelta(part) => Event::ToolCallDelta(convert::call_delta(part)),
                ChatEvent::ToolCall(whole) => Event::ToolCall(convert::call(whole)),
                ChatEvent::Usage(usage) => Event::Usage(convert::usage(usage)),
                ChatEvent::Finish(finish) => Event::Finish(convert::finish(finish)),
            };
            Ok(ChatResponse { choice, event: Some(event), id: id.clone() })
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
