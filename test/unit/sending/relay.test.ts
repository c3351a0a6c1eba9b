import { expect } from 'chai';
import { ConfigError, loadSettings } from '../../../src/config.ts';
import { parseRelay } from '../../../src/sending/transport/hops.ts';

describe('mail.relay', () => {
  it('is an smtp or smtps URL, with the submission ports by default', () => {
    expect(parseRelay('smtp://relay.example')).to.deep.equal({
      host: 'relay.example',
      port: 587,
      secure: false,
      auth: undefined,
    });
    expect(parseRelay('smtp://relay.example:25/')).to.include({ port: 25 });
    expect(parseRelay('smtps://me%40here:p%3Aw@relay.example')).to.deep.equal({
      host: 'relay.example',
      port: 465,
      secure: true,
      auth: { user: 'me@here', pass: 'p:w' },
    });
    expect(parseRelay('smtp://[2001:db8::1]:2525')).to.include({ host: '2001:db8::1', port: 2525 });
  });

  it('is invalid in any other form', () => {
    for (const text of [
      '',
      'relay.example',
      'relay.example:25',
      'http://relay.example',
      'smtp://',
      'smtp:///x',
      'smtp://:25',
      'smtp://relay.example/path',
      'smtp://relay.example?x=1',
      'smtp://relay.example#x',
      'smtp://:pw@relay.example',
      'smtp://%zz@relay.example',
      'smtp://a b',
      'smtp://relay.example:99999',
    ]) {
      expect(parseRelay(text), text).to.equal(undefined);
    }
  });

  it('is validated with the settings, and never shown', () => {
    const { settings, shown } = loadSettings(undefined, {
      POSTERN_HOSTNAME: 'mx.postern.test',
      POSTERN_MAIL__RELAY: 'smtp://me:secret@relay.example',
      POSTERN_OUTBOUND__RELAY: 'smtps://me:secret@relay.example',
    });
    expect(settings.outbound).to.include({
      relay: 'smtps://me:secret@relay.example',
      tls: 'opportunistic',
      mta_sts: true,
    });
    expect(settings.mail).to.deep.equal({
      relay: 'smtp://me:secret@relay.example',
      from: 'postmaster@mx.postern.test',
      mx_port: 25,
    });
    expect(settings.senders).to.deep.equal({ spf_include: 'spf.mx.postern.test', dkim_selector: 'postern' });
    expect(JSON.stringify(shown)).to.not.contain('secret');
    for (const wrong of [
      { POSTERN_MAIL__RELAY: 'relay.example' },
      { POSTERN_MAIL__FROM: 'postmaster' },
      { POSTERN_MAIL__FROM: 'a@b.example\r\nBcc: c@d.example' },
      { POSTERN_MAIL__MX_PORT: '0' },
      { POSTERN_OUTBOUND__RELAY: 'relay.example' },
      { POSTERN_OUTBOUND__TLS: 'yes' },
      { POSTERN_OUTBOUND__MTA_STS: '1' },
      { POSTERN_OUTBOUND__TIMEOUT_S: '0' },
      { POSTERN_SENDERS__DKIM_SELECTOR: 'a.b' },
      { POSTERN_SENDERS__SPF_INCLUDE: 'a b' },
    ]) {
      expect(() => loadSettings(undefined, wrong), JSON.stringify(wrong)).to.throw(ConfigError);
    }
  });
});
