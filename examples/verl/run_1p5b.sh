#!/usr/bin/env bash
# The paper's 1.5B run (arXiv 2510.04996) on verl's V1 trainer. Two GPUs or eight:
#   GPUS=2 POLICY=reinforce-ada-balance bash examples/verl/run_1p5b.sh
# Look at the config without a GPU:
#   CHECK=1 bash examples/verl/run_1p5b.sh
# What is given after the script's name goes to verl, such as trainer.total_training_steps=10.
set -euo pipefail

GPUS=${GPUS:-8}
POLICY=${POLICY:-reinforce-ada-balance}
MODEL=${MODEL:-Qwen/Qwen2.5-Math-1.5B}
TRAIN=${TRAIN:-data/train.parquet}
VALIDATE=${VALIDATE:-data/validate.parquet}
OUT=${OUT:-checkpoints/$(basename "$POLICY" .toml | tr -c 'a-zA-Z0-9._\n-' '_')}
HERE=$(cd "$(dirname "$0")" && pwd)

case "$GPUS" in
    2) MEMORY=0.6 TOKENS=16384 WORKERS=4 ;;
    8) MEMORY=0.7 TOKENS=24576 WORKERS=8 ;;
    *) echo "GPUS must be 2 or 8; got $GPUS. For another number copy a line of this script" >&2; exit 1 ;;
esac
MAIN=verl.trainer.main_ppo
[ -z "${CHECK:-}" ] || MAIN=ada_bandit.adapters.verl

# The first five lines switch the adapter on. With +ada.policy=grpo the same script is the baseline.
python3 -m "$MAIN" \
    "+ada.policy=\"$POLICY\"" \
    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=ada_bandit.adapters.verl.AdaptiveAgentLoopManager \
    trainer.v1.sampler.custom_sampler.path=pkg://ada_bandit.adapters.verl \
    trainer.v1.sampler.custom_sampler.name=AdaptiveReplayBuffer \
    algorithm.adv_estimator=ada_bandit \
    trainer.use_v1=true \
    trainer.v1.trainer_mode=sync \
    data.train_files="$TRAIN" \
    data.val_files="$VALIDATE" \
    data.train_batch_size=512 \
    data.max_prompt_length=1024 \
    data.max_response_length=3072 \
    data.truncation=left \
    data.filter_overlong_prompts=false \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.model.enable_gradient_checkpointing=true \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.optim.lr_warmup_steps=10 \
    actor_rollout_ref.actor.optim.weight_decay=0.0 \
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \
    actor_rollout_ref.actor.use_dynamic_bsz=true \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu="$TOKENS" \
    actor_rollout_ref.actor.clip_ratio_low=0.2 \
    actor_rollout_ref.actor.clip_ratio_high=0.28 \
    actor_rollout_ref.actor.clip_ratio_c=10.0 \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    actor_rollout_ref.actor.entropy_coeff=0.0001 \
    actor_rollout_ref.actor.use_kl_loss=false \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.temperature=1.0 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization="$MEMORY" \
    actor_rollout_ref.rollout.agent.num_workers="$WORKERS" \
    actor_rollout_ref.rollout.val_kwargs.temperature=1.0 \
    actor_rollout_ref.rollout.val_kwargs.do_sample=true \
    algorithm.use_kl_in_reward=false \
    reward.custom_reward_function.path="$HERE/reward.py" \
    reward.custom_reward_function.name=compute_score \
    +ada.reward_timeout=60 \
    trainer.n_gpus_per_node="$GPUS" \
    trainer.nnodes=1 \
    trainer.total_training_steps=600 \
    trainer.save_freq=50 \
    trainer.test_freq=50 \
    trainer.val_before_train=false \
    trainer.logger='[console,tensorboard]' \
    trainer.project_name=ada_bandit \
    trainer.experiment_name="$(basename "$OUT")" \
    trainer.default_local_dir="$OUT" \
    "$@"
