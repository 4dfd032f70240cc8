"""Neural networks by their published shapes. Sources: the config.json of each on huggingface.co, and the papers named."""

from evaluation.layers import Convolutional, Transformer

ENCODERS = (
    Transformer("MiniLM-L6", 6, 384, 1536, 1, False, 30522),       # sentence-transformers/all-MiniLM-L6-v2
    Transformer("DistilBERT", 6, 768, 3072, 1, False, 30522),      # distilbert-base-uncased
    Transformer("BERT-base", 12, 768, 3072, 1, False, 30522),      # bert-base-uncased
    Transformer("BERT-large", 24, 1024, 4096, 1, False, 30522),    # bert-large-uncased
    Transformer("ViT-B/16", 12, 768, 3072, 1, False, 1000),        # arXiv 2010.11929
    Transformer("ViT-L/16", 24, 1024, 4096, 1, False, 1000),       # arXiv 2010.11929
    Transformer("Whisper-small", 12, 768, 3072, 1, False, 51865),  # openai/whisper-small, its encoder
)
# Operations of one image and weights: torchvision's table of models. Bytes of activations: [estimate], four a
# multiplication's thousandth, as for ResNet-50 at 16 bits.
CONVOLUTIONAL = (
    Convolutional("MobileNetV2", 53, 0.6e9, 27e6, 3.5e6),
    Convolutional("EfficientNet-B0", 82, 0.78e9, 27e6, 5.3e6),
    Convolutional("ResNet-50", 53, 8.2e9, 45e6, 25.6e6),
    Convolutional("ResNet-101", 104, 15.6e9, 65e6, 44.5e6),
    Convolutional("DenseNet-121", 121, 5.7e9, 65e6, 8e6),
)
LANGUAGE = (
    Transformer("Qwen2.5-0.5B", 24, 896, 4864, 1 / 7, True, 151936),
    Transformer("Llama-3.2-1B", 16, 2048, 8192, 1 / 4, True, 128256),
    Transformer("TinyLlama-1.1B", 22, 2048, 5632, 1 / 8, True, 32000),
    Transformer("Gemma-2-2B", 26, 2304, 9216, 1 / 2, True, 256000),
    Transformer("Phi-3-mini", 32, 3072, 8192, 1, True, 32064),
    Transformer("Qwen2.5-7B", 28, 3584, 18944, 1 / 7, True, 152064),
    Transformer("Mistral-7B", 32, 4096, 14336, 1 / 4, True, 32000),
    Transformer("Llama-3-8B", 32, 4096, 14336, 1 / 4, True, 128256),
    Transformer("Llama-2-13B", 40, 5120, 13824, 1, True, 32000),
)
# What one H100 of 80 GB trains with AdamW, 16 bytes a weight.
TRAINED = (
    Transformer("GPT-2", 12, 768, 3072, 1, False, 50257),
    Transformer("GPT-2-medium", 24, 1024, 4096, 1, False, 50257),
    Transformer("GPT-2-XL", 48, 1600, 6400, 1, False, 50257),
    *(model for model in ENCODERS if model.name in ("BERT-base", "BERT-large", "ViT-L/16")),
    *(model for model in LANGUAGE if model.name in ("Qwen2.5-0.5B", "Llama-3.2-1B", "TinyLlama-1.1B")),
    *(model for model in CONVOLUTIONAL if model.name in ("ResNet-50", "ResNet-101", "EfficientNet-B0")),
)
# Shapes: DiT, arXiv 2212.09748; PixArt-alpha, arXiv 2310.00426. The two networks of convolutions: Stable Diffusion 1.5,
# 0.86 billion weights, and SDXL, 2.6 billion (arXiv 2307.01952); operations and bytes of a step: [estimate].
DENOISERS = (
    Transformer("DiT-XL/2", 28, 1152, 4608, 1, False, 1000),
    Transformer("PixArt-alpha", 28, 1152, 4608, 1, False, 1000),
    Convolutional("Stable-Diffusion-1.5", 160, 0.8e12, 2.5e9, 0.86e9),
    Convolutional("SDXL", 220, 6.0e12, 9e9, 2.6e9),
)
