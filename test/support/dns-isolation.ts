/**
 * Takes verdicts in a process of its own in which every way to the network and to a resolver is watched, and prints
 * what was tried as JSON. Loaded by test/unit/inbound/authenticate-isolation.test.ts.
 */
import dgram from 'node:dgram';
import dns from 'node:dns';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import tls from 'node:tls';

const tried: string[] = [];

function watch(owner: object, prefix: string, wanted: (name: string) => boolean): void {
  for (const name of Object.getOwnPropertyNames(owner)) {
    const property = Object.getOwnPropertyDescriptor(owner, name);
    if (typeof property?.value !== 'function' || !wanted(name)) continue;
    Reflect.set(owner, name, (...given: unknown[]) => {
      tried.push(`${prefix}.${name}(${String(given[0])})`);
      throw new Error('not from here');
    });
  }
}
const asks = (name: string) => /^(?:lookup|resolve|reverse)/.test(name);
watch(dns, 'dns', asks);
watch(dns.promises, 'dns.promises', asks);
watch(dns.Resolver.prototype, 'dns.Resolver', asks);
watch(dns.promises.Resolver.prototype, 'dns.promises.Resolver', asks);
watch(net, 'net', (name) => /^(?:connect|createConnection)$/.test(name));
watch(net.Socket.prototype, 'net.Socket', (name) => name === 'connect');
watch(tls, 'tls', (name) => name === 'connect');
watch(http, 'http', (name) => /^(?:get|request)$/.test(name));
watch(https, 'https', (name) => /^(?:get|request)$/.test(name));
watch(dgram, 'dgram', (name) => name === 'createSocket');
Reflect.set(globalThis, 'fetch', (url: unknown) => {
  tried.push(`fetch(${String(url)})`);
  throw new Error('not from here');
});

const { createAuthenticator } = await import('../../src/inbound/verdicts/authenticate.ts');
const { systemClock } = await import('../../src/base/clock.ts');
const { makeKey, signMessage } = await import('./dns-keys.ts');
const { zoneResolver } = await import('./zone.ts');

const key = makeKey('example.net', 'rsa', 1024);
const resolver = zoneResolver({
  ...key.records,
  'example.net': {
    A: ['192.0.2.2'],
    AAAA: ['2001:db8::2'],
    TXT: ['v=spf1 a mx ptr exists:%{i}.example.net include:inner.example.net redirect=inner.example.net'],
    MX: [{ exchange: 'mx.example.net', priority: 1 }],
  },
  'mx.example.net': { A: ['192.0.2.1'] },
  'inner.example.net': { TXT: ['v=spf1 ip4:192.0.2.7 exp=why.example.net -all'] },
  '_dmarc.example.net': { TXT: ['v=DMARC1; p=reject; rua=mailto:a@example.net'] },
  'default._bimi.example.net': { TXT: ['v=BIMI1; l=https://example.net/logo.svg; a=https://example.net/vmc.pem'] },
  '_mta-sts.example.net': { TXT: ['v=STSv1; id=1'] },
});
const authenticator = createAuthenticator({
  resolver,
  clock: systemClock,
  settings: { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'mx.postern.example', trustedSealers: [] },
});
const message =
  'BIMI-Selector: v=BIMI1; s=default\r\nReceived: from x ([192.0.2.1])\r\nFrom: ann@example.net\r\nTo: bob@in.example\r\nSubject: x\r\n\r\nHello\r\n';
const chain =
  'ARC-Seal: i=1; cv=none; a=rsa-sha256; d=example.net; s=rsa; b=x\r\nARC-Message-Signature: i=1; a=rsa-sha256; d=example.net; s=rsa; h=from; bh=x; b=y\r\nARC-Authentication-Results: i=1; x; spf=pass\r\n';
const verdicts = [];
for (const text of [message, signMessage(message, key), chain + signMessage(message, key)]) {
  for (const address of ['192.0.2.7', '198.51.100.1', '2001:db8::1']) {
    verdicts.push(
      await authenticator.authenticate(
        { kind: 'memory', bytes: Buffer.from(text) },
        { mailFrom: 'ann@example.net', client: { address, helo: 'example.net', tls: null } },
      ),
    );
  }
}
console.log(JSON.stringify({ tried, verdicts, asked: resolver.questions.map(({ name, type }) => `${type} ${name}`) }));
