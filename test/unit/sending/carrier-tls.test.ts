import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { expect } from 'chai';
import { MX_CERT, MX_KEY } from '../../support/carrier-tls.ts';
import { carry, createCarrierWorld, ONE_MX } from '../../support/carrier-world.ts';
import { CLOSE, type Script } from '../../support/scripted-smtp.ts';

const TLS = { cert: MX_CERT, key: MX_KEY };
const ENFORCE = { of: async () => ({ mode: 'enforce', hosts: ['mx.example.com'], maxAgeS: 86_400 }) as const };

describe('TLS for outgoing mail', () => {
  const known = getCACertificates('default');
  const world = createCarrierWorld();
  afterEach(async () => {
    setDefaultCACertificates(known);
    await world.stop();
  });

  it('is used where it is offered, with any certificate', async () => {
    const server = await world.server(undefined, { tls: TLS });
    const carrier = world.carrier();
    for (let i = 0; i < 2; i++) expect(await carry(carrier)).to.include({ kind: 'answered', code: 250, tls: true });
    expect(server.sessions).to.have.length(1);
    expect(server.sessions[0]).to.include({ tls: true });
    expect(server.sessions[0]?.commands.slice(0, 4)).to.deep.equal([
      'EHLO out.postern.test',
      'STARTTLS',
      'EHLO out.postern.test',
      'MAIL FROM:<bounce@sender.example>',
    ]);
  });

  it('falls back to plain text when it is offered and fails', async () => {
    const broken: readonly Script[] = [
      (step) => (step === 'STARTTLS' ? '454 4.7.0 not available' : undefined),
      (step) => (step === 'STARTTLS' ? CLOSE : undefined),
      (step) => (step === 'STARTTLS' ? { bytes: '220 go\r\n', then: 'close' } : undefined),
    ];
    for (const [i, script] of broken.entries()) {
      const server = await world.server(script, { tls: TLS });
      expect(await carry(world.carrier()), String(i)).to.include({ kind: 'answered', code: 250, tls: false });
      expect(server.sessions, String(i)).to.have.length(2);
      await world.stop();
    }
  });

  it('ignores plaintext replies sent before it began', async () => {
    const server = await world.server(
      (step, _line, { tls }) =>
        step === 'STARTTLS' ? '220 go\r\n250 2.1.0 injected' : step === 'RCPT' && tls ? '550 5.1.1 no' : undefined,
      { tls: TLS },
    );
    expect(await carry(world.carrier())).to.include({ kind: 'answered', code: 550 });
    expect(server.sessions).to.have.length(1);
  });

  it('is not used if it is disabled', async () => {
    const server = await world.server(undefined, { tls: TLS });
    expect(await carry(world.carrier({ tls: 'off' }))).to.include({ code: 250, tls: false });
    expect(server.sessions[0]?.commands).to.not.include('STARTTLS');
  });

  it('is a condition if it is required', async () => {
    const server = await world.server((step) => (step === 'STARTTLS' ? '454 4.7.0 not available' : undefined));
    expect(await carry(world.carrier({ tls: 'required' }))).to.include({ kind: 'unanswered', permanent: false });
    expect(server.sessions.flatMap(({ commands }) => commands).some((line) => line.startsWith('MAIL'))).to.equal(false);
    await world.stop();
    await world.server(undefined, { tls: TLS });
    expect(await carry(world.carrier({ tls: 'required' }))).to.include({ kind: 'answered', code: 250, tls: true });
  });

  it('needs a valid certificate where the domain enforces it', async () => {
    const server = await world.server(undefined, { tls: TLS });
    expect(await carry(world.carrier({ policies: ENFORCE }))).to.include({ kind: 'unanswered', permanent: false });
    expect(server.sessions.flatMap(({ messages }) => messages)).to.have.length(0);
    setDefaultCACertificates([...known, MX_CERT]);
    expect(await carry(world.carrier({ policies: ENFORCE }))).to.include({ kind: 'answered', code: 250, tls: true });
    const other = {
      'example.com': { MX: [{ exchange: 'other.example.com', priority: 1 }] },
      'other.example.com': { A: ['127.0.0.1'] },
    };
    const listed = { of: async () => ({ mode: 'enforce', hosts: ['*.example.com'], maxAgeS: 86_400 }) as const };
    expect(await carry(world.carrier({ policies: listed, zone: other })), 'a certificate for another host').to.include({
      kind: 'unanswered',
      permanent: false,
    });
  });

  it('skips hosts outside an enforced policy, and those without it', async () => {
    const server = await world.server();
    const zone = {
      ...ONE_MX,
      'example.com': { MX: [{ exchange: 'evil.example.net', priority: 1 }] },
      'evil.example.net': { A: ['127.0.0.1'] },
    };
    expect(await carry(world.carrier({ policies: ENFORCE, zone }))).to.include({
      kind: 'unanswered',
      permanent: false,
      reason: 'the MTA-STS policy of example.com lists none of its mail hosts',
    });
    expect(server.sessions).to.have.length(0);
    expect(await carry(world.carrier({ policies: ENFORCE }))).to.include({ kind: 'unanswered', permanent: false });
    expect(server.sessions.flatMap(({ messages }) => messages)).to.have.length(0);
  });

  it('is optional under a testing policy', async () => {
    const server = await world.server(undefined, { tls: TLS });
    for (const mode of ['testing', 'none'] as const) {
      expect(
        await carry(
          world.carrier({ policies: { of: async () => ({ mode, hosts: ['elsewhere.example'], maxAgeS: 1 }) } }),
        ),
      ).to.include({ kind: 'answered', code: 250, tls: true });
    }
    expect(server.sessions).to.have.length(2);
  });
});
