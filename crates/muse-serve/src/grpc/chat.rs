//! `ChatService` over gRPC.

use std::sync::Arc;

use muse_proto::v1::chat_response::Event;
use muse_proto::v1::chat_service_server::ChatService;
use muse_proto::v1::{ChatRequest, ChatResponse, TextDelta};
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status};

use super::{Responses, convert, deadline};
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
        let deadline = deadline(request.metadata());
        let request = request.into_inner();
        let settings = convert::settings(request.sampling, request.limits, deadline);
        let conversation = request.conversation.unwrap_or_default();
        let (conversation, tool_choice) =
            convert::conversation(conversation).map_err(convert::status)?;
        let job = ChatJob {
            model: Some(request.model),
            conversation,
            settings,
            stop: request.stop,
            stop_ids: Vec::new(),
            choices: request.choices,
            constraints: ChatConstraints {
                tool_choice,
                answer: convert::answer_rule(request.constraint).map_err(convert::status)?,
                thinking_budget: request.thinking_token_budget,
            },
        };
        let logprobs = job.settings.logprobs.is_some();
        let tokenizer = self.service.app().tokenizer.clone();
        let events = self.service.chat(job).await.map_err(convert::status)?;
        let responses = events.filter_map(move |event| {
            let (choice, event) = match event {
                Ok(event) => event,
                Err(error) => return Some(Err(convert::status(error))),
            };
            let event = match event {
                ChatEvent::Progress { done, total } => {
                    Event::Progress(convert::progress(done, total))
                }
                ChatEvent::Reasoning(text) => {
                    Event::Reasoning(TextDelta { text, tokens: Vec::new() })
                }
                ChatEvent::Content { text, tokens } => {
                    let token = |sampled| convert::token(sampled, tokenizer.as_deref(), logprobs);
                    Event::Text(TextDelta { text, tokens: tokens.into_iter().map(token).collect() })
                }
                // The protocol has no field to request deltas with.
                ChatEvent::ToolCallDelta(_) => return None,
                ChatEvent::ToolCall(call) => Event::ToolCall(convert::call(call)),
                ChatEvent::Usage(usage) => Event::Usage(convert::usage(usage)),
                ChatEvent::Finish(finish) => Event::Finish(convert::finish(finish)),
            };
            Some(Ok(ChatResponse { choice, event: Some(event) }))
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
