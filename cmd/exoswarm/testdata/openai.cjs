// Asks a server with the stock client of OpenAI, and prints what it answers as JSON.
let OpenAI;
try {
  OpenAI = require("openai").OpenAI;
} catch {
  console.log("the package openai is not installed");
  process.exit(1);
}
(async () => {
  const client = new OpenAI();
  const models = [];
  for await (const m of await client.models.list()) models.push(m.id);
  const ask = {
    model: "gopher", max_tokens: 30, temperature: 0,
    messages: [{ role: "user", content: "Close closes the connection." }],
  };
  const whole = await client.chat.completions.create(ask);
  const stream = await client.chat.completions.create({
    ...ask, stream: true, stream_options: { include_usage: true },
  });
  let streamed = "", events = 0, tokens = 0;
  for await (const e of stream) {
    streamed += e.choices[0]?.delta?.content ?? "";
    tokens = e.usage?.completion_tokens ?? tokens;
    events++;
  }
  const embeddings = await client.embeddings.create({ model: "gopher", input: ["func main", "x"] });
  let code = "";
  try {
    await client.completions.create({ model: "none", prompt: "x" });
  } catch (e) {
    code = e.code;
  }
  console.log(JSON.stringify({
    models, streamed, events, tokens, code, text: whole.choices[0].message.content,
    embeddings: embeddings.data.filter((e) => e.embedding.length === 128).length,
  }));
})();
