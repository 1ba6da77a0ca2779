//! `TokenizerService` over gRPC.

use muse_core::contract::Token;
use muse_proto::v1::tokenizer_service_server::TokenizerService;
use muse_proto::v1::{
    DetokenizeRequest, DetokenizeResponse, RenderPromptRequest, RenderPromptResponse,
    TokenizeRequest, TokenizeResponse,
};
use tonic::{Request, Response, Status};

use super::call::Call;
use super::convert;
use crate::service::Service;

/// Bytes of a token id in a reply: as a token, as an id, and written.
const ID_BYTES: usize = 12;

/// Implements `TokenizerService`.
pub struct TokenizerApi {
    service: Service,
}

impl TokenizerApi {
    pub(super) fn with_service(service: Service) -> Self {
        Self { service }
    }
}

#[tonic::async_trait]
impl TokenizerService for TokenizerApi {
    async fn tokenize(
        &self,
        request: Request<TokenizeRequest>,
    ) -> Result<Response<TokenizeResponse>, Status> {
        let call = Call::of(&request);
        let TokenizeRequest { model, text } = request.into_inner();
        self.service.check_model(Some(&model)).map_err(|error| call.status(error))?;
        let tokens = self.service.tokenize(text).await.map_err(|error| call.status(error))?;
        call.reserve(tokens.len() * ID_BYTES)?;
        Ok(Response::new(TokenizeResponse { ids: convert::ids(&tokens) }))
    }

    async fn detokenize(
        &self,
        request: Request<DetokenizeRequest>,
    ) -> Result<Response<DetokenizeResponse>, Status> {
        let call = Call::of(&request);
        let DetokenizeRequest { model, ids } = request.into_inner();
        self.service.check_model(Some(&model)).map_err(|error| call.status(error))?;
        let tokens = ids.into_iter().map(Token).collect();
        let bytes = self.service.detokenize(tokens).await.map_err(|error| call.status(error))?;
        call.reserve(4 * bytes.len())?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Response::new(DetokenizeResponse { bytes, text }))
    }

    async fn render_prompt(
        &self,
        request: Request<RenderPromptRequest>,
    ) -> Result<Response<RenderPromptResponse>, Status> {
        let call = Call::of(&request);
        let RenderPromptRequest { model, conversation } = request.into_inner();
        self.service.check_model(Some(&model)).map_err(|error| call.status(error))?;
        let (conversation, _) = convert::conversation(conversation.unwrap_or_default())
            .map_err(|error| call.status(error))?;
        let prompt = self.service.render(conversation).await.map_err(|error| call.status(error))?;
        call.reserve(2 * prompt.text.len() + prompt.tokens.len() * ID_BYTES)?;
        let ids = convert::ids(&prompt.tokens);
        Ok(Response::new(RenderPromptResponse { text: prompt.text, ids }))
    }
}
