"""Agent Skills: folders with a `SKILL.md`, whose instructions an agent loads when it needs them."""
