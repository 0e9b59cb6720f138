"""peft: LoRA on a tiny Llama: training of the adapter, saved, loaded, merged into the weights."""

import tempfile

import torch
from common import fill, show, train
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    return fill(LlamaForCausalLM(config))


ids = torch.arange(16).reshape(2, 8)
lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
model = get_peft_model(llama(), lora)
trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
show("trainable", *model.get_nb_trainable_parameters())
fill(torch.nn.ParameterList(trainable))
train(model, lambda: model(input_ids=ids, labels=ids).loss)
model.eval()
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = PeftModel.from_pretrained(llama(), folder).eval()
with torch.no_grad():
    after = model(input_ids=ids).logits
    show("loaded", torch.equal(again(input_ids=ids).logits, after))
    with model.disable_adapter():
        show("disabled", model(input_ids=ids, labels=ids).loss)
    merged = model.merge_and_unload()
    show("merged", (merged(input_ids=ids).logits - after).abs().max() < 1e-4)
