mkdir -p greet
cat > greet/SKILL.md <<'END'
---
name: greet
description: Greets people formally. Use when asked to greet a customer.
---
Begin every greeting with "Dear".
END
