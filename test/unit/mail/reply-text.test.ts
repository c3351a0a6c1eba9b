import { expect } from 'chai';
import { replyOf, splitHtmlReply, splitReply } from '../../../src/mail/replies/reply-text.ts';
import { QUOTING } from '../../support/quoting.ts';

const lines = (...all: string[]) => all.map((line) => `${line}\n`).join('');
const OWN = lines('Thanks, that works.', '', 'Ann');
const ATTRIBUTION = 'On Mon, Jan 5, 2026 at 3:04 PM Bob <bob@example.com> wrote:';
const HEADER = ['From: Bob <bob@example.com>', 'Sent: Monday, 5 January 2026 15:04', 'To: Ann', 'Subject: Hello'];
const all = (text: string) => ({ reply: text, quoted: '' });

describe('the reply in a plain text', () => {
  for (const [program, above] of Object.entries(QUOTING)) {
    it(`ends above the quote: ${program}`, () => {
      const marked = lines('', ...above, '', '> Does it work?', '> Bob');
      expect(splitReply(OWN + marked)).to.deep.equal({ reply: OWN, quoted: marked });
      const unmarked = lines('', ...above, '', 'Does it work?', 'Bob');
      expect(splitReply(OWN + unmarked)).to.deep.equal({ reply: OWN, quoted: unmarked });
      const close = lines(...above, 'Does it work?');
      expect(splitReply(OWN + close), 'without an empty line').to.deep.equal({ reply: OWN, quoted: close });
    });

    it(`begins below the quote: ${program}`, () => {
      const quoted = lines(...above, '> Does it work?', '');
      expect(splitReply(quoted + OWN)).to.deep.equal({ reply: OWN, quoted });
    });
  }

  it('is the whole text if nothing is quoted', () => {
    for (const text of [
      '',
      '\n\n',
      OWN,
      'no line end',
      lines('On Monday we met, and Bob wrote:', 'we ship on Friday.', 'Do we?'),
      lines('According to the log Bob wrote at 12:30:', 'x'),
      lines('The meeting is at 12:30:', 'come early'),
      lines('To: everyone', 'From: me', 'Have a nice day'),
      lines('Steps:', '1. From: the menu', '2. Date: pick one'),
      lines('a > b', 'c -----Original Message----- d'),
      lines('See https://example.com/on/2026/wrote:', 'x'),
    ])
      expect(splitReply(text)).to.deep.equal(all(text));
  });

  it('keeps questions between answers, and loses only the quote below the last answer', () => {
    const inline = lines(ATTRIBUTION, '> Does it work?', 'Yes.', '> When?', '', 'Monday.', '');
    expect(splitReply(inline)).to.deep.equal(all(inline));
    const below = lines('> Greetings,', '> Bob');
    expect(splitReply(inline + below)).to.deep.equal({
      reply: inline.slice(0, -1),
      quoted: `\n${below}`,
    });
    expect(splitReply(lines('Hi Bob,', 'see below.', '') + inline).quoted).to.equal('');
  });

  it('includes text around a quote with an attribution, and keeps a quote without one', () => {
    const quoted = lines('', ATTRIBUTION, '> Does it work?', '>', '>> Old', '> text');
    const end = lines('', 'P.S. Monday.');
    expect(splitReply(OWN + quoted + end)).to.deep.equal({ reply: OWN + end, quoted });
    const excerpt = lines('The manual says:', '> turn it off', 'Did you?');
    expect(splitReply(excerpt)).to.deep.equal(all(excerpt));
  });

  it('includes a quote of its own above the attribution of the original message', () => {
    const own = lines('Let me end with a quote:', '', '> this is my own quote');
    for (const quoted of [lines('', ATTRIBUTION, '', '> Hello', '> second line'), lines('', ATTRIBUTION, '', 'Hello')])
      expect(splitReply(own + quoted)).to.deep.equal({ reply: own, quoted });
    const answered = lines('> Does it work?', 'Yes.', '', '> a quote', '', ATTRIBUTION, '> Does it work?');
    expect(splitReply(answered).reply).to.equal(lines('> Does it work?', 'Yes.', '', '> a quote'));
  });

  it('includes the signature of the sender, above and below a quote', () => {
    const signed = `${OWN}-- \nAnn Example\n+49 30 123\n`;
    const quoted = lines('', ATTRIBUTION, '> Hi');
    expect(splitReply(signed + quoted)).to.deep.equal({ reply: signed, quoted });
    expect(splitReply(OWN + quoted + '\n-- \nAnn\n').reply).to.equal(`${OWN}\n-- \nAnn\n`);
  });

  it('includes forwarded text', () => {
    const forwarded = [...HEADER, '', 'Hello', '', ATTRIBUTION, '> older'];
    for (const mark of [
      '---------- Forwarded message ---------',
      '-------- Weitergeleitete Nachricht --------',
      'Begin forwarded message:',
      'Anfang der weitergeleiteten Nachricht:',
      'Début du message réexpédié :',
      '-------- Mensaje reenviado --------',
      '-------- Doorgestuurd bericht --------',
      '-------- 转发的邮件 --------',
    ]) {
      const text = OWN + lines('', mark, ...forwarded);
      expect(splitReply(text), mark).to.deep.equal(all(text));
    }
    const outlook = OWN + lines('', ...forwarded);
    for (const subject of ['FW: Hello', 'Fwd: Hello', 'WG: Hello', 'TR : Hello', 'RV: Hello', 'VS: Hei', '转发：你好'])
      expect(splitReply(outlook, subject), subject).to.deep.equal(all(outlook));
    expect(splitReply(outlook, 'RE: FW: Hello').reply).to.equal(OWN);
    const answered = OWN + lines('', ATTRIBUTION, '> ---------- Forwarded message ---------', '> From: Cid');
    expect(splitReply(answered).reply, 'the answer to a forwarded message').to.equal(OWN);
  });

  it('is the full text if the sender wrote nothing, since it may be a forward', () => {
    for (const text of [
      lines(ATTRIBUTION, '> Hello'),
      lines('> Hello'),
      lines(...HEADER, '', 'Hello'),
      lines('-----Original Message-----', ...HEADER, '', 'Hello'),
      lines('', ATTRIBUTION, '', 'Hello', '', ATTRIBUTION, '> older'),
    ])
      expect(splitReply(text)).to.deep.equal(all(text));
  });

  it('does not treat its own words as a part of a wrapped attribution', () => {
    const quoted = lines('On Mon, Jan 5, 2026 at 3:04 PM Bob', '<bob@example.com> wrote:', '> Hi');
    for (const own of ['On it.', 'It is on', 'Am I right?', 'OK'])
      expect(splitReply(lines(own) + quoted), own).to.deep.equal({ reply: lines(own), quoted });
    const shared = lines('Fine with me On Mon, Jan 5, 2026 at 3:04 PM, bob@example.com wrote:', '> Hi');
    expect(splitReply(shared).reply).to.include('Fine with me');
  });

  it('has each line in one part, for any text', () => {
    let seed = 1;
    const next = (most: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
      return seed % most;
    };
    const pieces = [...Object.values(QUOTING).flat(), ...HEADER, '> q', '>> q', 'own', '', ' ', '____________', '--'];
    for (let i = 0; i < 5000; i++) {
      const text = lines(...Array.from({ length: next(14) }, () => pieces[next(pieces.length)] ?? ''));
      const { reply, quoted } = splitReply(text);
      expect((reply + quoted).split('\n').toSorted(), text).to.deep.equal(text.split('\n').toSorted());
      if (/^(?!>)\S/m.test(text)) expect(reply.trim(), text).not.to.equal('');
    }
  });
});

describe('the reply in an HTML page', () => {
  const own = '<div dir="ltr">Thanks, that works.</div>';
  const reply = 'Thanks, that works.\n';

  it('ends above the quote elements of mail programs', () => {
    const programs = {
      gmail:
        '<div class="gmail_quote gmail_quote_container"><div dir="ltr" class="gmail_attr">Any words<br></div><blockquote class="gmail_quote" style="margin:0"><div>Hello <blockquote>x</blockquote> y</div></blockquote></div>',
      'apple mail': '<div><br><blockquote type="cite"><div>On 5 Jan 2026, Bob wrote:</div>Hello</blockquote></div>',
      thunderbird:
        '<div class="moz-cite-prefix">Am 05.01.26 schrieb Bob:</div><blockquote type="cite">Hello</blockquote>',
      roundcube: '<p id="reply-intro">Any words</p><blockquote type="cite">Hello</blockquote>',
      'outlook on the web':
        '<div id="appendonsend"></div><hr><div id="divRplyFwdMsg"><b>Any:</b> words</div><div>Hello</div>',
      'outlook for the desktop':
        '<div style="border:none;border-top:solid #E1E1E1 1.0pt;padding:3.0pt 0cm 0cm 0cm"><p><b>Any:</b> words</p></div><p>Hello</p>',
      'outlook, by its header':
        '<hr><p><b>Von:</b> Bob<br><b>Gesendet:</b> Montag, 5. Januar 2026<br><b>An:</b> Ann<br><b>Betreff:</b> Hi</p><p>Hello</p>',
      'any, by its attribution': '<br><br>Bob &lt;bob@example.com&gt; schrieb am 5. Januar 2026:<br>Hello',
    };
    for (const [program, quoted] of Object.entries(programs)) {
      const found = splitHtmlReply(`<html><head><style>a{}</style></head><body>${own}${quoted}</body></html>`);
      expect(found.reply, program).to.equal(reply);
      expect(found.quoted, program).to.include('Hello');
    }
  });

  it('keeps the sender’s own quotes above that of the mail program', () => {
    const cite = (text: string) => `<blockquote type="cite">${text}</blockquote>`;
    const thunderbird = `<div class="moz-cite-prefix">Any words</div>${cite('<p>Hello</p>')}`;
    const apple = cite('<div>On 5 Jan 2026, at 15:04, Bob &lt;bob@example.com&gt; wrote:</div>Hello');
    const gmail = `<div class="gmail_quote"><div class="gmail_attr">Any words</div>${cite('Hello')}</div>`;
    for (const quoted of [thunderbird, apple, gmail]) {
      const found = splitHtmlReply(`<p>As the manual says:</p>${cite('turn it off')}${quoted}`);
      expect(found.reply).to.equal('As the manual says:\nturn it off\n');
      expect(found.quoted).to.include('Hello');
    }
  });

  it('ends above an attribution that is wrapped within its address', () => {
    const wrapped = 'On Mon, Jan 5, 2026 at 3:04 PM Bob &lt;<a href="mailto:b@example.com">b@example.com</a><br>&gt;:';
    const found = splitHtmlReply(`${own}<div>${wrapped}</div><blockquote type="cite">Hello</blockquote>`);
    expect(found.reply).to.equal(reply);
  });

  it('includes answers between quotes, forwarded text, and quotes within the text', () => {
    const inline =
      '<div class="gmail_quote"><div class="gmail_attr">On Monday, Bob wrote:</div><blockquote class="gmail_quote">Does it work?</blockquote><div>Yes.</div><blockquote class="gmail_quote">Bye</blockquote></div>';
    const found = splitHtmlReply(inline);
    expect(found.reply).to.include('Does it work?').and.to.include('Yes.').and.not.to.include('Bye');
    const forwarded = `${own}<div class="gmail_quote"><div class="gmail_attr">---------- Forwarded message ---------<br>From: Bob</div>Hello</div>`;
    expect(splitHtmlReply(forwarded).quoted).to.equal('');
    expect(splitHtmlReply(`${own}<blockquote>As Goethe said</blockquote>`).quoted).to.equal('');
    expect(splitHtmlReply('<blockquote type="cite">Hello').reply).to.equal('Hello\n');
  });
});

describe('the reply in a payload', () => {
  const message = (text?: string | (() => Iterable<string>), html?: string) => ({ text, html, subject: 'Re: Hi' });

  it('comes from the text, and from the HTML only without a text', () => {
    const html = '<p>page</p>';
    expect(replyOf(message('text\n', html))).to.deep.equal({ reply: 'text\n', quoted: '', cut: false });
    expect(replyOf(message(undefined, html))).to.deep.equal({ reply: 'page\n', quoted: '', cut: false });
    expect(replyOf(message())).to.deep.equal({ reply: '', quoted: '', cut: false });
  });

  it('is truncated between characters, and marked so', () => {
    const own = '😀'.repeat(200_000);
    const long = replyOf(message(own));
    expect(long.cut).to.equal(true);
    expect(own.startsWith(long.reply)).to.equal(true);
    expect(long.reply.length).to.equal(256 * 1024);
    expect(replyOf(message(`x${own}`)).reply.isWellFormed()).to.equal(true);
    const history = `Thanks\n\n${ATTRIBUTION}\n${'> line\n'.repeat(20_000)}`;
    const answer = replyOf(message(history));
    expect(answer).to.include({ reply: 'Thanks\n', cut: true });
    expect(answer.quoted.length).to.equal(64 * 1024);
  });

  it('reads only the start of a large text', () => {
    let read = 0;
    const endless = function* () {
      for (;;) {
        read++;
        yield `${'own words\n'.repeat(1000)}`;
      }
    };
    expect(replyOf(message(endless)).cut).to.equal(true);
    expect(read).to.be.below(60);
  });
});
