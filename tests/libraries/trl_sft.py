"""trl: supervised fine-tuning of a tiny Llama on a data set in memory, by transformers' Trainer."""

import os
import tempfile

import torch
from common import fill, show, steps

cache = tempfile.TemporaryDirectory()
os.environ["HF_HOME"] = cache.name

from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

words = Tokenizer(models.WordLevel({f"w{at}": at for at in range(60)} | {"<pad>": 60, "</s>": 61}, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>")
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    bos_token_id=None,
    eos_token_id=61,
    pad_token_id=60,
)


class Clock(TrainerCallback):
    def __init__(self) -> None:
        self.clock = steps()

    def on_step_begin(self, *args, **options):
        next(self.clock, None)


model = fill(LlamaForCausalLM(config))
data = Dataset.from_dict({"text": [" ".join(f"w{(at * 7 + step) % 60}" for step in range(6)) for at in range(24)]})
with tempfile.TemporaryDirectory() as folder:
    options = SFTConfig(
        output_dir=folder,
        per_device_train_batch_size=2,
        max_steps=11,
        logging_steps=1,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        train_sampling_strategy="sequential",
    )
    trainer = SFTTrainer(model, options, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()])
    trainer.train()
logs = trainer.state.log_history
show("losses", *[entry["loss"] for entry in logs if "loss" in entry][:3])
show("norms", *[entry["grad_norm"] for entry in logs if "grad_norm" in entry][:2])
model.eval()
show("loss", model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss < 6)
