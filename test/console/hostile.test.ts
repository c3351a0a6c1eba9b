import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, startConsolePage } from '../support/console-page.ts';
import { until } from '../support/until.ts';

// Mail that wants to be noticed: nothing of it may run, and not one connection may leave the browser.

const program = chromium();

/** Ways out of a page, to a listener. */
const ways = (at: string): Readonly<Record<string, string>> => ({
  'an image': `<img src="http://${at}/img">`,
  'an image of several sizes': `<img srcset="http://${at}/srcset 2x">`,
  'a style sheet': `<link rel="stylesheet" href="http://${at}/css">`,
  'an import': `<style>@import url("http://${at}/import");</style>`,
  'a font': `<style>@font-face{font-family:f;src:url("http://${at}/font")}p{font-family:f}</style><p>x</p>`,
  'a background': `<div style="background:url(http://${at}/background)">x</div>`,
  'a background attribute': `<table background="http://${at}/table"><tr><td>x</td></tr></table>`,
  'an image set': `<div style="background-image:image-set('http://${at}/set' 1x)">x</div>`,
  'a preconnect': `<link rel="preconnect" href="http://${at}">`,
  'a prefetch': `<link rel="prefetch" href="http://${at}/prefetch">`,
  'a preload': `<link rel="preload" as="image" href="http://${at}/preload">`,
  'an SVG image': `<svg><image href="http://${at}/svg"/></svg>`,
  'an SVG filter': `<svg width="9" height="9"><filter id="f"><feImage href="http://${at}/fe"/></filter><rect width="9" height="9" filter="url(#f)"/></svg>`,
  'a poster': `<video poster="http://${at}/poster"></video>`,
  'a film': `<video src="http://${at}/video" autoplay muted></video>`,
  'a frame': `<iframe src="http://${at}/frame"></iframe>`,
  'an object': `<object data="http://${at}/object"></object>`,
  'an embed': `<embed src="http://${at}/embed">`,
  'a refresh': `<meta http-equiv="refresh" content="0;url=http://${at}/refresh">`,
  'a script': `<script src="http://${at}/script"></script>`,
  'a script of its own': `<script>fetch("http://${at}/own")</script>`,
  'a script of an image': `<img src="x" onerror="fetch('http://${at}/onerror')">`,
  'a form that is sent': `<form action="http://${at}/form"><input name="a" autofocus onfocus="this.form.submit()"></form>`,
  'a link': `<a href="http://${at}/link" style="position:fixed;inset:0;display:block">x</a>`,
  'a link to the top': `<a href="http://${at}/top" target="_top" style="position:fixed;inset:0;display:block">x</a>`,
});

if (program !== undefined)
  describe('hostile mail in the console', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    let listener: Server;
    let at: string;
    let connections = 0;
    const ids: Record<string, string> = {};

    before(async () => {
      listener = createServer((socket) => {
        connections++;
        socket.on('error', () => undefined);
        socket.resume();
        socket.end('HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n');
      });
      await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
      at = `127.0.0.1:${(listener.address() as AddressInfo).port}`;
      page = await startConsolePage(program);
      for (const [name, html] of Object.entries(ways(at))) ids[name] = await take(html);
      ids['all of them'] = await take(Object.values(ways(at)).join('\r\n'));
    });
    after(async () => {
      await page?.stop();
      await new Promise((resolve) => listener.close(resolve));
    });

    async function take(html: string): Promise<string> {
      const reply = await page.mail(
        `Subject: <img src="http://${at}/subject">\r\nMIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n<p>Look here</p>${html}`,
      );
      const [, id = ''] = /queued as (\w+)/.exec(reply) ?? [];
      expect(id, reply).to.not.equal('');
      let found: { id: string }[] = [];
      await until('the delivery', async () => {
        found = (await page.running.api('/inbound/deliveries')).filter(
          (one: { message_id: string }) => one.message_id === id,
        );
        return found.length === 1;
      });
      return found[0]?.id ?? '';
    }

    /** Opens the HTML of a mail, and clicks into the middle of it. */
    async function look(id: string): Promise<void> {
      await page.open(`/message/${id}?tab=html`);
      await until('the frame', () => page.browser.evaluate(`document.querySelector('iframe') !== null`));
      const shown = await page.browser.evaluate(
        `fetch(document.querySelector('iframe').src).then((one) => one.text())`,
      );
      expect(shown).to.contain('<p>Look here</p>');
      const middle = `(() => { const frame = document.querySelector('iframe'); frame.scrollIntoView({ block: 'center' }); const { x, y, width, height } = frame.getBoundingClientRect(); return [x + width / 2, y + height / 2]; })()`;
      const [x, y] = await page.browser.evaluate(middle);
      await pause();
      await page.browser.click(x, y);
      await pause();
      expect(await page.browser.evaluate(`location.pathname`), 'the page stays').to.equal(`/console/message/${id}`);
    }

    for (const name of [...Object.keys(ways('')), 'all of them'])
      it(`makes no connection for ${name}, clicked into as well`, async () => {
        const before = connections;
        await look(ids[name] ?? '');
        expect(connections - before).to.equal(0);
      });

    it('would be noticed: the same mail without filter and policy connects', async () => {
      const before = connections;
      const plain = createHttpServer((request, response) => {
        response.setHeader('Content-Type', 'text/html');
        const isMail = request.url === '/mail';
        response.end(isMail ? Object.values(ways(at)).join('\n') : '<iframe sandbox="" src="/mail"></iframe>');
      });
      await new Promise<void>((resolve) => plain.listen(0, '127.0.0.1', resolve));
      await page.browser.open(`http://127.0.0.1:${(plain.address() as AddressInfo).port}/`, 800, 600);
      await until('connections', async () => connections - before >= 10);
      await page.browser.open('about:blank', 800, 600);
      plain.closeAllConnections();
      await new Promise((resolve) => plain.close(resolve));
    });

    it('shows subjects, names, replies and HELO as text, and violates no policy', async () => {
      page.hook.answer({ status: 500, body: `<img src="http://${at}/answer">` });
      const before = connections;
      const file = `Content-Type: image/svg+xml; name="<img src=x onerror=alert(1)>.svg"`;
      const id = await take(`<p>x</p>\r\n${file}`);
      await page.open('/');
      await page.browser.evaluate(
        `window.violations = []; document.addEventListener('securitypolicyviolation', (one) => violations.push(one.violatedDirective)); 0`,
      );
      await page.shows(`<img src="http://${at}/subject">`);
      for (const path of ['/mail', '/endpoints', `/message/${id}`]) {
        await page.browser.evaluate(
          `history.pushState(null, '', '/console${path}'); dispatchEvent(new PopStateEvent('popstate')); 0`,
        );
        await pause();
      }
      await page.shows(`<img src="http://${at}/answer">`);
      expect(await page.browser.evaluate('violations')).to.deep.equal([]);
      expect(await page.browser.evaluate(`document.querySelectorAll('#app img, #app script').length`)).to.equal(0);
      expect(connections - before).to.equal(0);
    });
  });

/** Long enough for a page to begin what it begins by itself; its absence has no event to wait for. */
function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 400));
}
