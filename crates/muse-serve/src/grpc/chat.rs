//! `ChatService` over gRPC.

use std::sync::Arc;

use muse_proto::v1::chat_response::Event;
use muse_proto::v1::chat_service_server::ChatService;
use muse_proto::v1::{ChatRequest, ChatResponse, TextDelta};
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status};

use super::{Responses, convert, deadline};
use crate::app::App;
use crate::service::{Ask, ChatEvent, Gate, Rules, Service};

/// Answers conversations.
pub struct Chat {
    service: Service,
}

impl Chat {
    /// Answers with a model of this process, for as long as it lives.
    pub fn new(app: Arc<App>) -> Self {
        Self::over(Service::new(app, Gate::default()))
    }

    pub(super) fn over(service: Service) -> Self {
        Self { service }
    }
}

#[tonic::async_trait]
impl ChatService for Chat {
    type ChatStream = Responses<ChatResponse>;

    async fn chat(
        &self,
        request: Request<ChatRequest>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        let deadline = deadline(request.metadata());
        let request = request.into_inner();
        let settings = convert::settings(request.sampling, request.limits, deadline);
        let conversation = request.conversation.unwrap_or_default();
        let (conversation, tools) = convert::conversation(conversation).map_err(convert::status)?;
        let ask = Ask {
            model: Some(request.model),
            conversation,
            settings,
            stop: request.stop,
            stop_ids: Vec::new(),
            choices: request.choices,
            rules: Rules {
                tools,
                answer: convert::answer_rule(request.constraint).map_err(convert::status)?,
                thinking: request.thinking_token_budget,
            },
        };
        let asked = ask.settings.logprobs.is_some();
        let tokenizer = self.service.app().tokenizer.clone();
        let answer = self.service.chat(ask).await.map_err(convert::status)?;
        let responses = answer.filter_map(move |event| {
            let (choice, event) = match event {
                Ok(event) => event,
                Err(refusal) => return Some(Err(convert::status(refusal))),
            };
            let event = match event {
                ChatEvent::Progress { done, total } => {
                    Event::Progress(convert::progress(done, total))
                }
                ChatEvent::Think(text) => Event::Reasoning(TextDelta { text, tokens: Vec::new() }),
                ChatEvent::Say { text, tokens } => {
                    let token = |picked| convert::token(picked, tokenizer.as_deref(), asked);
                    Event::Text(TextDelta { text, tokens: tokens.into_iter().map(token).collect() })
                }
                // Nobody can ask for them here.
                ChatEvent::CallPart(_) => return None,
                ChatEvent::Call(call) => Event::ToolCall(convert::call(call)),
                ChatEvent::Spent(spent) => Event::Usage(convert::usage(spent)),
                ChatEvent::End(end) => Event::Finish(convert::finish(end)),
            };
            Some(Ok(ChatResponse { choice, event: Some(event) }))
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
