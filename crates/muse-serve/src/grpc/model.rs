//! `ModelService` over gRPC.

use muse_proto::v1::model_service_server::ModelService;
use muse_proto::v1::{
    GetModelRequest, GetModelResponse, ListModelsRequest, ListModelsResponse, Model, Sampling,
    TokenBias, WeightFormat,
};
use tonic::{Request, Response, Status};

use super::convert;
use crate::service::Service;

/// Tells which model is served.
pub struct Models {
    service: Service,
}

impl Models {
    pub(super) fn over(service: Service) -> Self {
        Self { service }
    }

    fn model(&self) -> Model {
        let app = self.service.app();
        let (card, own) = (&app.model, &app.sampling);
        let format =
            |(name, share): &(String, f32)| WeightFormat { name: name.clone(), share: *share };
        Model {
            name: card.name.clone(),
            architecture: card.architecture.clone(),
            max_positions: card.max_positions,
            vocabulary: card.vocab,
            parameters: card.parameters,
            formats: card.formats.iter().map(format).collect(),
            backend: card.backend.clone(),
            draft_width: card.draft_width,
            loaded_at_seconds: card.loaded_at,
            has_tokenizer: app.tokenizer.is_some(),
            default_sampling: Some(Sampling {
                temperature: Some(own.temperature),
                top_k: Some(own.top_k),
                top_p: Some(own.top_p),
                min_p: Some(own.min_p),
                repetition_penalty: Some(own.repetition_penalty),
                frequency_penalty: Some(own.frequency_penalty),
                presence_penalty: Some(own.presence_penalty),
                bias: own
                    .logit_bias
                    .iter()
                    .map(|&(token, bias)| TokenBias { id: token.0, bias })
                    .collect(),
                seed: None,
            }),
            stop_ids: convert::ids(&app.stop),
        }
    }
}

#[tonic::async_trait]
impl ModelService for Models {
    async fn list_models(
        &self,
        _: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        Ok(Response::new(ListModelsResponse { models: vec![self.model()] }))
    }

    async fn get_model(
        &self,
        request: Request<GetModelRequest>,
    ) -> Result<Response<GetModelResponse>, Status> {
        let name = request.into_inner().name;
        self.service.check_model(Some(&name)).map_err(convert::status)?;
        Ok(Response::new(GetModelResponse { model: Some(self.model()) }))
    }
}
