import { connect } from 'node:net';
import { KEY } from '../daemon.ts';
import type { HostPort } from '../mail.ts';
import { type Client, createClient } from '../smtp.ts';
import { plain } from '../submission.ts';

/** A connection that has been greeted and has said EHLO. */
export async function greeted(at: HostPort): Promise<Client> {
  const client = createClient(connect({ ...at, allowHalfOpen: true }).setNoDelay());
  await client.reply();
  await client.say('EHLO client.test');
  return client;
}

/** The same in TLS, and logged in. */
export async function loggedIn(at: HostPort): Promise<Client> {
  const client = await greeted(at);
  await client.say('STARTTLS');
  await client.secure();
  await client.say('EHLO client.test');
  const reply = await client.say(`AUTH PLAIN ${plain(KEY)}`);
  if (!reply.startsWith('235')) throw new Error(`AUTH was answered: ${reply}`);
  return client;
}

/** Replies until the connection ends; the empty line of a TLS end is none. */
export async function repliesToEnd(client: Client): Promise<string[]> {
  const replies: string[] = [];
  for (;;) {
    const reply = await client.reply();
    if (reply === 'closed') return replies;
    replies.push(reply);
  }
}
