/** Domains where anybody can have a mailbox: to read mail there proves nothing about the domain. */
const FREE = new Set(`
aol.com aim.com gmail.com googlemail.com google.com
yahoo.com ymail.com rocketmail.com yahoo.co.uk yahoo.co.in yahoo.co.jp yahoo.fr yahoo.de yahoo.it yahoo.es yahoo.ca yahoo.in yahoo.com.au yahoo.com.br yahoo.com.mx yahoo.com.ar yahoo.com.ph yahoo.com.sg
outlook.com outlook.de outlook.fr outlook.es outlook.it outlook.jp outlook.com.br hotmail.com hotmail.co.uk hotmail.de hotmail.fr hotmail.it hotmail.es hotmail.nl hotmail.com.br
live.com live.co.uk live.de live.fr live.nl live.it live.com.au msn.com passport.com
icloud.com me.com mac.com
gmx.de gmx.net gmx.com gmx.at gmx.ch gmx.fr gmx.us web.de freenet.de t-online.de mail.de posteo.de 1und1.de arcor.de
mail.com email.com usa.com myself.com consultant.com inbox.com hushmail.com lycos.com excite.com zoho.com zohomail.com fastmail.com fastmail.fm
proton.me protonmail.com protonmail.ch pm.me tutanota.com tutanota.de tuta.io tuta.com
mail.ru bk.ru inbox.ru list.ru internet.ru yandex.ru yandex.com ya.ru rambler.ru ukr.net
qq.com foxmail.com 163.com 126.com yeah.net sina.com sina.cn sohu.com aliyun.com 139.com 189.cn
naver.com daum.net hanmail.net nate.com docomo.ne.jp ezweb.ne.jp softbank.ne.jp
orange.fr wanadoo.fr free.fr laposte.net sfr.fr neuf.fr libero.it virgilio.it tiscali.it alice.it tin.it terra.com.br uol.com.br bol.com.br ig.com.br
comcast.net verizon.net att.net sbcglobal.net bellsouth.net cox.net charter.net earthlink.net juno.com netzero.net btinternet.com sky.com talktalk.net virginmedia.com
rediffmail.com seznam.cz centrum.cz wp.pl o2.pl onet.pl interia.pl bigpond.com optusnet.com.au shaw.ca rogers.com sympatico.ca telus.net bluewin.ch
mailinator.com guerrillamail.com yopmail.com 10minutemail.com trashmail.com
`.trim().split(/\s+/));

/** Whether a domain (A-labels) belongs to a provider of free mail. */
export function isFreeMail(domain: string): boolean {
  return FREE.has(domain);
}
