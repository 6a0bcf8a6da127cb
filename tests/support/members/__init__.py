"""Members of consumer groups as processes of their own, and the judgement of what they tell about themselves."""
