"""What a person sees: a gradio panel over a session, its HTTP routes, and the standalone page. gradio is imported only
when a panel is built, and torch never."""
