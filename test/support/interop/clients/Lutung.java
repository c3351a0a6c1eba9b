import com.microtripit.mandrillapp.lutung.MandrillApi;
import com.microtripit.mandrillapp.lutung.view.*;
import java.util.*;

/** Lutung, led to the address that is given. */
public class Lutung {
    public static void main(String[] args) throws Exception {
        MandrillApi api = new MandrillApi(args[1], args[0] + "/api/1.0/");
        MandrillMessage message = new MandrillMessage();
        message.setFromEmail("ops@sender.test");
        message.setSubject("lutung *|NAME|*");
        message.setText("Hi");
        MandrillMessage.Recipient recipient = new MandrillMessage.Recipient();
        recipient.setEmail("lutung@to.test");
        message.setTo(List.of(recipient));
        message.setMetadata(Map.of("user", "7"));
        message.setGlobalMergeVars(List.of(new MandrillMessage.MergeVar("NAME", List.of("a", "b"))));
        MandrillMessageStatus sent = api.messages().send(message, false)[0];
        if (!sent.getStatus().equals("queued")) throw new IllegalStateException(sent.getStatus());
        MandrillMessageInfo info = api.messages().info(sent.getId());
        if (!info.getSubject().equals("lutung a,b") || !info.getMetadata().get("user").equals("7")) throw new IllegalStateException(info.getSubject());
        MandrillSearchMessageParams everything = new MandrillSearchMessageParams();
        if (api.messages().search(everything).length == 0) throw new IllegalStateException("nothing was found");
        everything.setDateFrom(new Date(0));
        if (api.messages().search(everything).length == 0) throw new IllegalStateException("nothing was found since 1970");
        String raw = "From: ops@sender.test\r\nTo: lutung@to.test\r\nSubject: lutung raw\r\n\r\nHi";
        MandrillMessageStatus handed = api.messages().sendRaw(null, null, raw, null, true)[0];
        MandrillWebhook hook = api.webhooks().add(args[2], "from java", List.of("send"));
        MandrillWebhook kept = api.webhooks().update(hook.getId(), args[2], "still", null);
        if (kept.getEvents().length != 1 || !kept.getAuthKey().equals(hook.getAuthKey())) throw new IllegalStateException(Arrays.toString(kept.getEvents()));
        System.out.println("[\"" + sent.getId() + "\",\"" + handed.getId() + "\"]");
    }
}
