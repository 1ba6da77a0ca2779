//! `TokenizerService` over gRPC.

use muse_core::contract::Token;
use muse_proto::v1::tokenizer_service_server::TokenizerService;
use muse_proto::v1::{
    DetokenizeRequest, DetokenizeResponse, RenderPromptRequest, RenderPromptResponse,
    TokenizeRequest, TokenizeResponse,
};
use tonic::{Request, Response, Status};

use super::convert;
use crate::service::Service;

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
        let TokenizeRequest { model, text } = request.into_inner();
        self.service.check_model(Some(&model)).map_err(convert::status)?;
        let tokens = self.service.tokenize(text).await.map_err(convert::status)?;
        Ok(Response::new(TokenizeResponse { ids: convert::ids(&tokens) }))
    }

    async fn detokenize(
        &self,
        request: Request<DetokenizeRequest>,
    ) -> Result<Response<DetokenizeResponse>, Status> {
        let DetokenizeRequest { model, ids } = request.into_inner();
        self.service.check_model(Some(&model)).map_err(convert::status)?;
        let tokens: Vec<Token> = ids.into_iter().map(Token).collect();
        let bytes = self.service.detokenize(&tokens).map_err(convert::status)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Response::new(DetokenizeResponse { bytes, text }))
    }

    async fn render_prompt(
        &self,
        request: Request<RenderPromptRequest>,
    ) -> Result<Response<RenderPromptResponse>, Status> {
        let RenderPromptRequest { model, conversation } = request.into_inner();
        self.service.check_model(Some(&model)).map_err(convert::status)?;
        let (conversation, _) =
            convert::conversation(conversation.unwrap_or_default()).map_err(convert::status)?;
        let prompt = self.service.render(conversation).await.map_err(convert::status)?;
        let ids = convert::ids(&prompt.tokens);
        Ok(Response::new(RenderPromptResponse { text: prompt.text, ids }))
    }
}
