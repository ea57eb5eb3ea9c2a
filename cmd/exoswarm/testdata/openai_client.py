"""Asks a server with the stock client of OpenAI, and prints what it answers as JSON."""
import json
import sys

try:
    import openai
except ImportError:
    sys.exit("the package openai is not installed")

client = openai.OpenAI()
models = [m.id for m in client.models.list()]
ask = dict(model="gopher", max_tokens=30, temperature=0, messages=[{"role": "user", "content": "Close closes the connection."}])
whole = client.chat.completions.create(**ask)
streamed, events, tokens = "", 0, 0
for e in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
    events += 1
    if e.choices:
        streamed += e.choices[0].delta.content or ""
    if e.usage:
        tokens = e.usage.completion_tokens
embeddings = client.embeddings.create(model="gopher", input=["func main", "x"])
code = ""
try:
    client.completions.create(model="none", prompt="x")
except openai.NotFoundError as e:
    code = e.code
print(json.dumps(dict(
    models=models, streamed=streamed, events=events, tokens=tokens, code=code, text=whole.choices[0].message.content,
    embeddings=sum(len(e.embedding) == 128 for e in embeddings.data))))
