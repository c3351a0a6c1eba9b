import { readFileSync } from 'node:fs';
import { open, readdir, readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { simpleParser } from 'mailparser';
import { SMTPServer } from 'smtp-server';
import { Pool } from 'undici';

/**
 * What people build by hand: smtp-server, simpleParser, a POST of JSON. The 250 is given when the whole message has
 * arrived, as most do, and a post that fails is lost; with --queue FOLDER it is given when a file there and its name
 * are synced, and the file goes when it is posted. Usage: node hand.ts [--fetch] [--queue FOLDER] [--cert FILE --key
 * FILE] URL...
 */
const { values, positionals: urls } = parseArgs({
  allowPositionals: true,
  options: {
    fetch: { type: 'boolean', default: false },
    queue: { type: 'string' },
    cert: { type: 'string' },
    key: { type: 'string' },
  },
});
const { queue, cert, key } = values;
const endpoints = urls.map((url) => {
  const { origin, pathname } = new URL(url);
  return { url, pathname, pool: new Pool(origin, { connections: 50 }) };
});

async function post(recipient: string, body: string): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const endpoint = endpoints[endpoints.length === 1 ? 0 : Number(/^bench-(\d+)@/.exec(recipient)?.[1])];
  if (!endpoint) throw new Error(`no endpoint for ${recipient}`);
  const { url, pathname, pool } = endpoint;
  if (values.fetch) await (await fetch(url, { method: 'POST', headers, body })).arrayBuffer();
  else await (await pool.request({ method: 'POST', path: pathname, headers, body })).body.dump();
}

const server = new SMTPServer({
  authOptional: true,
  disabledCommands: cert === undefined ? ['AUTH', 'STARTTLS'] : ['AUTH'],
  ...(cert !== undefined && key !== undefined && { cert: readFileSync(cert), key: readFileSync(key) }),
  disableReverseLookup: true,
  size: 26_214_400,
  onData(stream, session, done) {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('end', () => {
      const raw = Buffer.concat(chunks);
      const recipients = session.envelope.rcptTo.map(({ address }) => address);
      if (queue !== undefined) return void keep(raw, recipients, done);
      done();
      handle(raw, recipients).catch(() => {});
    });
  },
});

const folder = queue === undefined ? undefined : await open(queue);
let kept = 0;

/** A line with the recipients, then the message. */
async function keep(raw: Buffer, recipients: string[], done: (error?: Error) => void): Promise<void> {
  const name = join(queue ?? '', `${Date.now()}-${process.pid}-${kept++}`);
  try {
    const file = await open(name, 'w');
    await file.writeFile(Buffer.concat([Buffer.from(`${JSON.stringify(recipients)}\n`), raw]));
    await file.sync();
    await file.close();
    await folder?.sync();
  } catch (error) {
    return done(error instanceof Error ? error : new Error(String(error)));
  }
  done();
  await carry(name, raw, recipients);
}

async function carry(name: string, raw: Buffer, recipients: string[]): Promise<void> {
  try {
    await handle(raw, recipients);
    await unlink(name);
  } catch {
    // The file stays, for the next start.
  }
}

async function handle(raw: Buffer, recipients: string[]): Promise<void> {
  const mail = await simpleParser(raw);
  const attachments = mail.attachments.map(({ filename, contentType, content }) => ({
    name: filename,
    type: contentType,
    content: content.toString('base64'),
  }));
  await post(
    recipients[0] ?? '',
    JSON.stringify({
      recipients,
      from: mail.from?.value,
      to: mail.to,
      subject: mail.subject,
      text: mail.text,
      html: mail.html,
      headers: mail.headerLines,
      attachments,
      raw: raw.toString(),
    }),
  );
}

if (queue !== undefined)
  for (const name of await readdir(queue)) {
    const file = await readFile(join(queue, name));
    const line = file.indexOf('\n');
    await carry(join(queue, name), file.subarray(line + 1), JSON.parse(file.toString('utf8', 0, line)));
  }
server.listen(0, '127.0.0.1', () => {
  const address = server.server.address();
  console.log(JSON.stringify({ port: typeof address === 'object' ? address?.port : 0 }));
});
process.on('SIGTERM', () => process.exit(0));
