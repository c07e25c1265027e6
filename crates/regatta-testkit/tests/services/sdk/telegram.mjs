// A bot made with grammY, which polls, answers, asks by a button and edits.
import { Bot, InlineKeyboard } from "grammy";
import { fail, task, tell } from "./common.mjs";

const bot = new Bot(task.token, { client: { apiRoot: task.base } });
bot.catch(fail);
bot.on("message:text", async (context) => {
  await context.replyWithChatAction("typing");
  await context.react("👀");
  const reply_markup = new InlineKeyboard().text("Allow", "allow:7");
  const reply_parameters = { message_id: context.msg.message_id };
  const sent = await context.reply("<b>May I?</b>", { parse_mode: "HTML", reply_markup, reply_parameters });
  tell("asked", { id: sent.message_id, text: context.msg.text });
});
bot.on("callback_query:data", async (context) => {
  await context.answerCallbackQuery("Thank you");
  await context.editMessageText(`Allowed ${context.callbackQuery.data}`);
  tell("clicked");
});
await bot.init();
tell("ready", { username: bot.botInfo.username });
await bot.start();
