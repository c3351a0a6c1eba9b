import { simpleParser } from 'mailparser';
import { SMTPServer } from 'smtp-server';
import { Pool } from 'undici';

/**
 * What people build by hand: smtp-server, simpleParser, a POST of JSON, nothing written to disk. The 250 is given when
 * the whole message has arrived, as most do; a post that fails is lost. Usage: node hand.ts fetch|undici SINK_URL
 */
const [how = 'fetch', sink = ''] = process.argv.slice(2);
const { origin, pathname } = new URL(sink);
const pool = new Pool(origin, { connections: 50 });

async function post(body: string): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  if (how === 'fetch') await (await fetch(sink, { method: 'POST', headers, body })).arrayBuffer();
  else await (await pool.request({ method: 'POST', path: pathname, headers, body })).body.dump();
}

const server = new SMTPServer({
  authOptional: true,
  disabledCommands: ['AUTH', 'STARTTLS'],
  disableReverseLookup: true,
  size: 26_214_400,
  onData(stream, session, done) {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('end', () => {
      done();
      void handle(
        Buffer.concat(chunks),
        session.envelope.rcptTo.map(({ address }) => address),
      );
    });
  },
});

async function handle(raw: Buffer, recipients: string[]): Promise<void> {
  const mail = await simpleParser(raw);
  const attachments = mail.attachments.map(({ filename, contentType, content }) => ({
    name: filename,
    type: contentType,
    content: content.toString('base64'),
  }));
  await post(
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

server.listen(0, '127.0.0.1', () => {
  const address = server.server.address();
  console.log(JSON.stringify({ port: typeof address === 'object' ? address?.port : 0 }));
});
process.on('SIGTERM', () => process.exit(0));
