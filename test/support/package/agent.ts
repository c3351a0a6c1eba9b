import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { startReceiver } from '../receiver.ts';
import { type Client, createClient } from '../smtp.ts';

// A process in the network of the host that the package was installed on: it sends mail, calls the API, and is the
// webhook. One JSON object a line, in both directions.

const COMMAND = z.object({ id: z.number() }).and(
  z.discriminatedUnion('do', [
    z.object({ do: z.literal('talk'), port: z.number(), from: z.string(), lines: z.array(z.string()) }),
    z.object({
      do: z.literal('post'),
      url: z.string(),
      body: z.unknown(),
      headers: z.record(z.string(), z.string()).default({}),
    }),
    z.object({ do: z.literal('answer'), status: z.number(), to: z.string() }),
    z.object({ do: z.literal('received') }),
  ]),
);
type Command = z.infer<typeof COMMAND>;

const [, , host, port] = process.argv;
const receiver = await startReceiver(host === undefined ? {} : { listen: { host, port: Number(port) } });
/** How posts are answered that hold a text; all others 200. */
const answers = new Map<string, number>();
/** Every post with the id of its delivery and its answer. */
const posts: { readonly id: unknown; readonly text: string; readonly status: number }[] = [];
receiver.answer(({ method, headers, body }) => {
  const text = new URLSearchParams(body.toString()).get('mandrill_events') ?? '';
  const status = [...answers].find(([part]) => text.includes(part))?.[1] ?? 200;
  if (method === 'POST') posts.push({ id: headers['webhook-id'], text, status });
  return { status };
});

/**
 * Says the lines one after the other, each when the last was answered. STARTTLS is done when it is said; DATA's text is
 * one line.
 */
async function talk(port: number, from: string, lines: readonly string[]): Promise<string[]> {
  const client: Client = createClient(connect({ host: '127.0.0.1', port, localAddress: from }));
  const replies = [await client.reply()];
  for (const line of lines) {
    const reply = await client.say(line);
    replies.push(reply);
    if (line === 'STARTTLS' && reply.startsWith('220')) await client.secure();
  }
  client.destroy();
  return replies;
}

async function post(
  url: string,
  body: unknown,
  headers: Record<string, string>,
): Promise<{ status: number; body: unknown }> {
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

async function perform(command: Command): Promise<unknown> {
  if (command.do === 'talk') return talk(command.port, command.from, command.lines);
  if (command.do === 'post') return post(command.url, command.body, command.headers);
  if (command.do === 'answer') return void answers.set(command.to, command.status);
  return posts;
}

process.stdout.write(`${JSON.stringify({ id: 0, result: receiver.url })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const command = COMMAND.parse(JSON.parse(line));
  perform(command)
    .then(
      (result) => ({ result }),
      (error: unknown) => ({ fault: String(error) }),
    )
    .then((answer) => process.stdout.write(`${JSON.stringify({ id: command.id, ...answer })}\n`));
}
await receiver.stop();
